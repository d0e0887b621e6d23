"""Manifests: each launch records its design, from which any site can recreate the experiment."""

import json
import subprocess
from dataclasses import fields, replace
from decimal import Decimal

import pytest
from django.urls import reverse

from datasets_app.models import Dataset
from evalsite import __version__
from evalsite.lib.ops.installation import ROOT
from evalsite.lib.ops.versions import get_commit, get_version
from grading_app.grading.judging.grader_specs import create_experiment
from runs_app import run_control
from runs_app.experiment_files.spec_reader import SpecError, read_yaml
from runs_app.models import Dimension, Prompt, Sampler
from runs_app.planning.cost_estimate import estimate
from runs_app.planning.design import Design
from runs_app.planning.manifests import write_manifest
from runs_app.planning.spec_io import SETTINGS
from runs_app.pricing.costs import CostEstimate
from tests.factories.drafts import (
    get_or_make_user,
    make_draft_dimension,
    make_draft_experiment,
    make_question_prompt,
    make_questions,
)
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
TEXT = "What is {{input}}?\nSay \u2028 or \x85 or \U0001f600: {{dimension_instructions}}"


@shared_rows
def ada():
    return get_or_make_user("ada", superuser=True)


@shared_rows
def launched_experiment(ada_of_file):
    experiment = make_draft_experiment(
        owner=ada_of_file,
        dataset=make_questions(slug="questions"),
        prompts=[make_question_prompt(messages=[{"role": "user", "content": TEXT}])],
        dimensions=[make_draft_dimension(labels={"1": "Low", "7": "High"})],
        max_usd=Decimal("1.50"),
    )
    estimated = estimate(experiment, wave_label="march", pilot=2)
    run_control.launch(experiment, by=ada_of_file, wave="march", pilot=2, approved=estimated)
    return experiment


def download_file(experiment, client, ada):
    client.force_login(ada)
    address = reverse("experiment_manifest", args=[experiment.slug, experiment.manifests.first().pk])
    return client.get(address)


def create_again(text, ada, name="again"):
    spec = read_yaml(text).model_copy(update={"experiment": name})
    return create_experiment(spec, by=ada)


def test_a_manifest_records_the_launch_its_author_and_its_estimate(launched_experiment):
    manifest = launched_experiment.manifests.get()
    estimated = manifest.launch["estimate"]
    assert (manifest.launch["by"], manifest.launch["wave"], manifest.launch["pilot"]) == ("ada", "march", 2)
    assert (estimated["trials"], estimated["to_do"], estimated["basis"]) == (3, 2, {"ceiling": 2})
    assert [basis.startswith("estimated: 1 token per 3 bytes") for basis in estimated["counted"].values()] == [True]
    assert float(estimated["ceiling_usd"]) > 0
    assert manifest.summary == "a pilot of 2, wave march, by ada"


def test_a_manifest_contains_all_fields_of_the_estimate_that_are_not_stored_elsewhere(ada):
    experiment = make_draft_experiment(owner=ada, dataset=make_questions(slug="questions"))
    changed_estimate = replace(
        estimate(experiment), coverage=0.25, likely=2, foreseen=1, batched=3, verdicts=6,
        full_usd=Decimal("0.75"), batches_save_usd=Decimal("0.125"),
    )  # fmt: skip
    estimated = write_manifest(experiment, by=ada, approved=changed_estimate).launch["estimate"]
    counts = [estimated[name] for name in ("coverage", "likely", "foreseen", "batched", "verdicts")]
    assert (counts, estimated["full_usd"], estimated["batches_save_usd"]) == ([0.25, 2, 1, 3, 6], "0.75", "0.125")
    said_elsewhere = {"prices", "unknown_prices", "problems", "warnings"}
    assert {field.name for field in fields(CostEstimate)} - set(estimated) == said_elsewhere


def test_a_manifest_names_the_version_and_the_commit_of_the_code(launched_experiment):
    content = launched_experiment.manifests.get().content
    assert content["evalsite"] == {"version": get_version(), "commit": get_commit()}
    assert content["evalsite"]["version"].startswith(f"{__version__}+")


def test_the_commit_is_read_from_the_checkout_or_empty_without_one(monkeypatch, tmp_path):
    command = ["git", "-C", ROOT, "rev-parse", "HEAD"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert get_commit.__wrapped__() == completed.stdout.strip()
    monkeypatch.setattr("evalsite.lib.ops.versions.ROOT", tmp_path)
    assert get_commit.__wrapped__() == ""


def test_the_commit_that_a_build_recorded_comes_before_the_checkouts(monkeypatch, tmp_path):
    (tmp_path / "commit.txt").write_text("4f1d\n")
    monkeypatch.setattr("evalsite.lib.ops.versions.COMMIT_FILE", tmp_path / "commit.txt")
    assert get_commit.__wrapped__() == "4f1d"


def test_a_manifest_contains_every_setting_of_an_experiment_file(launched_experiment):
    content = launched_experiment.manifests.get().content
    assert {*content["settings"], "samples"} == set(SETTINGS)
    assert set(SETTINGS) <= set(content["design"])
    assert (content["settings"]["on_empty"], content["settings"]["stop_failure_rate"]) == ("keep", 0.05)


def test_a_manifest_recreates_the_same_experiment_without_new_rows(launched_experiment, client, ada):
    response = download_file(launched_experiment, client, ada)
    assert response["Content-Disposition"].startswith('attachment; filename="pilot-manifest-')
    copy = create_again(response.content.decode(), ada)
    ids = [[cell.condition_id for cell in Design.load(one).cells] for one in (launched_experiment, copy)]
    assert ids[0] == ids[1]
    assert [kind.objects.count() for kind in (Prompt, Sampler, Dimension)] == [1, 1, 1]
    assert (copy.dataset, copy.samples, copy.max_usd) == (
        launched_experiment.dataset,
        launched_experiment.samples,
        launched_experiment.max_usd,
    )


def test_parts_of_a_manifest_that_the_site_lacks_are_created_with_the_same_identity(launched_experiment, client, ada):
    text = download_file(launched_experiment, client, ada).content.decode()
    content = json.loads(text)
    content["design"]["prompts"][0]["name"] = content["design"]["dimensions"][0]["name"] = "elsewhere"
    copy = create_again(json.dumps(content), ada)
    assert copy.prompts.get().content_hash == launched_experiment.prompts.get().content_hash
    assert copy.dimensions.get().labels == {"1": "Low", "7": "High"}


def test_another_dataset_under_the_same_name_is_refused(launched_experiment, client, ada):
    content = json.loads(download_file(launched_experiment, client, ada).content)
    content["design"]["dataset_hash"] = "0" * 64
    dataset = Dataset.objects.get()
    with pytest.raises(
        SpecError, match=f"dataset_hash: {dataset} has another content here, {dataset.content_hash[:12]}"
    ):
        create_again(json.dumps(content), ada)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '{"design": {"experiment": "a", "experiment": "b"}}',
            "a key occurs twice in the mapping that starts with experi",
        ),
        ('{"design": 3}', "an experiment file must be a mapping"),
        ('{"schema": 1}', "schema: unknown key"),
        ('{"design": {"experiment": "a",}}', "dataset: field required"),
    ],
)
def test_an_invalid_manifest_is_refused_with_a_message(text, problem):
    with pytest.raises(SpecError, match=problem):
        read_yaml(text)


def test_the_design_page_lists_manifests(launched_experiment, client, ada):
    client.force_login(ada)
    page = client.get(launched_experiment.get_absolute_url()).content.decode()
    assert "A pilot of 2, wave march, by ada" in page
    assert reverse("experiment_manifest", args=["pilot", launched_experiment.manifests.get().pk]) in page


def test_a_manifest_is_found_only_under_its_own_experiment(launched_experiment, client, ada):
    other = make_draft_experiment(
        "other",
        owner=ada,
        dataset=launched_experiment.dataset,
        models=launched_experiment.language_models.all(),
        prompts=launched_experiment.prompts.all(),
        samplers=launched_experiment.samplers.all(),
    )
    client.force_login(ada)
    address = reverse("experiment_manifest", args=[other.slug, launched_experiment.manifests.get().pk])
    assert client.get(address).status_code == 404
