"""Every fenced block of the documents is run or compared by a test that names its document."""

import re

import pytest
import yaml
from django.urls import resolve

from evalsite.lib.ops.installation import ROOT
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.experiment_files.spec_reader import read_yaml

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TRIED_BY = {
    "api.md": "tests/system/client/test_examples_of_the_api.py",
    "experiment-file.md": "tests/unit/docs/test_every_block_is_tried.py",
    "exports.md": "tests/integration/export/test_publications_reach_the_hub.py",
    "first-study.md": "tests/system/docs/test_documents_can_be_typed.py",
    "operating.md": "tests/unit/docs/test_every_block_is_tried.py",
    "parametric-tasks.md": "tests/unit/docs/test_every_block_is_tried.py",
}


def read_blocks(document):
    return FENCE.findall((ROOT / "docs" / document).read_text(encoding="utf-8"))


def read_only_block(document):
    ((_, text),) = read_blocks(document)
    return text


def test_each_document_with_blocks_has_a_test_that_names_it():
    with_blocks = {page.name for page in (ROOT / "docs").glob("*.md") if read_blocks(page.name)}
    assert with_blocks == set(TRIED_BY)
    for document, test in TRIED_BY.items():
        assert document in (ROOT / test).read_text(encoding="utf-8"), test


@pytest.mark.parametrize("document", TRIED_BY)
def test_every_fence_is_a_block_with_a_language(document):
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    assert 2 * len(read_blocks(document)) == len(re.findall(r"^```", text, re.MULTILINE))


def test_the_design_of_the_experiment_file_is_the_shipped_sample():
    shown = read_yaml(read_only_block("experiment-file.md"))
    sample = read_yaml((ROOT / "samples" / "questions-pilot.yaml").read_text(encoding="utf-8"))
    for name in ("experiment", "dataset", "models", "samplers", "samples", "max_concurrency", "budget"):
        assert getattr(shown, name) == getattr(sample, name), name
    assert shown.prompts[0].system == sample.prompts[0].system
    assert shown.grade.scorers == sample.grade.scorers


def test_the_stopping_rule_of_the_document_is_valid_and_reads_as_written():
    content = yaml.safe_load(read_only_block("parametric-tasks.md"))["adaptive"]
    spec = AdaptiveSpec.model_validate(content)
    assert {name: spec.content[name] for name in content} == content


def test_the_scrape_of_the_document_asks_for_the_address_of_the_metrics():
    ((job,),) = yaml.safe_load(read_only_block("operating.md")).values()
    assert set(job) == {"job_name", "authorization", "static_configs"}, "the rest are the defaults of Prometheus"
    assert set(job["authorization"]) == {"credentials_file"}, "its default type is Bearer, as the site reads it"
    assert resolve("/metrics").url_name == "metrics"
