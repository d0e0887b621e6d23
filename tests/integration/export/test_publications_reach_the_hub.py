"""A publication is uploaded to the Hub by the Hub's own client, as docs/exports.md describes, and read from there."""

import csv
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import HfApi

from evalsite.lib.ops.installation import ROOT
from tests.factories.hub_repositories import open_hub

pytestmark = pytest.mark.django_db


@pytest.fixture
def hub():
    with open_hub() as (address, repositories):
        yield HfApi(endpoint=address, token="hub-token"), repositories


def test_the_dataset_has_its_card_its_benchmark_and_its_tables(folder, hub, tmp_path):
    api, repositories = hub
    api.create_repo("lab/pilot", repo_type="dataset")
    api.upload_folder(folder_path=folder, repo_id="lab/pilot", repo_type="dataset", ignore_patterns="eval_results/*")
    files = {path: (folder / path).read_bytes() for path in ("README.md", "eval.yaml", "data/trials.csv")}
    assert {path: repositories["datasets/lab/pilot"][path] for path in files} == files
    assert not any(path.startswith("eval_results/") for path in repositories["datasets/lab/pilot"])
    loaded = api.hf_hub_download("lab/pilot", "data/trials.csv", repo_type="dataset", cache_dir=tmp_path / "cache")
    with Path(loaded).open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 8


def test_a_models_results_are_in_the_folder_that_the_hub_reads(folder, hub):
    api, repositories = hub
    for model in ("small", "large"):
        api.create_repo(f"lab/{model}")
        api.upload_folder(folder_path=folder / "eval_results" / model, repo_id=f"lab/{model}")
        assert list(repositories[f"models/lab/{model}"]) == [".eval_results/pilot.yaml"]
        (entry,) = yaml.safe_load(repositories[f"models/lab/{model}"][".eval_results/pilot.yaml"])
        assert entry["dataset"] == {"id": "lab/pilot", "task_id": "pilot"}
        assert entry["value"] == 50.0


def test_the_example_of_the_document_publishes_a_study(folder, hub, monkeypatch):
    api, repositories = hub
    document = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    api.create_repo("lab/small")
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: api)
    folder.rename(folder.parent / "pilot")
    monkeypatch.chdir(folder.parent)
    names = {"OWNER/NAME": "lab/pilot", "OWNER/MODEL": "lab/small", "eval_results/MODEL": "eval_results/small"}
    for placeholder, name in names.items():
        example = example.replace(placeholder, name)
    exec(example, {})  # noqa: S102 - our own document
    assert {"README.md", "eval.yaml", "data/trials.csv"} <= set(repositories["datasets/lab/pilot"])
    assert list(repositories["models/lab/small"]) == [".eval_results/pilot.yaml"]
