"""Bundles of a dataset, a design, an analysis or a whole study, imported by another site."""

import hashlib
import json
import shutil
import zipfile

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.urls import reverse

from datasets_app.models import Asset, Dataset, Item, Norm
from evalsite.lib import permissions
from grading_app.publish.export.snapshot_check import SnapshotFileError, verify
from runs_app.models import Experiment, LanguageModel, Prompt, Run, Sampler, Trial
from runs_app.planning.plan import plan
from runs_app.planning.work import PlanError
from tests import factories
from tests.factories.imports import import_snapshot
from tests.factories.queues import make_numbered_items

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"


@pytest.fixture
def owner():
    return factories.make_user("importer", permissions.RESEARCHER)


def rate(item, dimension, index):
    return {"answer": "Fine.", "rating": 2 + index + item.position % 3}


def make_study(status="done"):
    """Return a study of two models on photographs with norms. It has no gradings; the ratings are the scores."""
    dataset = make_numbered_items("photos", 4, images=True, approved=False)
    Norm.objects.bulk_create(Norm(item=item, dimension="joy", mean=2.5, sd=1, n=9) for item in dataset.items.all())
    dataset.approve(by="test", reason="ready")
    joy = factories.make_dimension("joy")
    experiment = factories.make_experiment(
        "pilot", dataset=dataset, samples=2, dimensions=[joy], title="A pilot",
        models=[factories.make_model("small"), factories.make_model("large")],
    )  # fmt: skip
    for run in factories.make_runs(experiment, status=status):
        factories.plan_trials(run, answer=rate)
    return experiment


def write_bundle(tmp_path, kind, name, *options):
    call_command("bundle", kind, name, "--out", str(tmp_path / f"{kind}.zip"), *options)
    return tmp_path / f"{kind}.zip"


def make_foreign_bundle(tmp_path, settings, kind, name, make=make_study):
    """Return a bundle of another site. Its rows and images no longer exist here."""
    with transaction.atomic():
        make()
        path = write_bundle(tmp_path, kind, name)
        transaction.set_rollback(True)
    shutil.rmtree(settings.MEDIA_ROOT)
    assert not Dataset.objects.exists()
    return path


def read_parts(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_forged_copy(path, tmp_path, changes):
    """Return a tampered copy: changed parts with matching checksums."""
    contents = {name: content for name, content in (read_parts(path) | changes).items() if name != "SHA256SUMS"}
    sums = "".join(f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents))
    with zipfile.ZipFile(tmp_path / "forged.zip", "w") as archive:
        for name, content in (contents | {"SHA256SUMS": sums.encode()}).items():
            archive.writestr(name, content)
    return tmp_path / "forged.zip"


# --- datasets ---------------------------------------------------------------------------------------------------------


def test_an_imported_dataset_is_approved_with_images_norms_and_the_same_hash(tmp_path, settings, owner):
    path = make_foreign_bundle(tmp_path, settings, "dataset", "photos@1")
    assert verify(path).problems == []
    imported = import_snapshot(path, owner)
    dataset = imported.dataset
    assert (imported.experiment, str(dataset), dataset.status) == (None, "photos@1", "approved")
    assert dataset.hash_items() == dataset.content_hash
    assert (dataset.items.count(), Norm.objects.count(), Asset.objects.count()) == (4, 4, 4)
    assert dataset.history.filter(aspect="import", by=owner).exists()
    assert not Prompt.objects.exists()
    second_bundle = write_bundle(tmp_path, "dataset", "photos@1")
    assert verify(second_bundle).content == imported.content == verify(path).content


@pytest.mark.slow
def test_an_imported_dataset_gets_a_new_name_if_its_name_is_in_use(tmp_path, owner):
    make_study()
    path = write_bundle(tmp_path, "dataset", "photos@1")
    imported = import_snapshot(path, owner)
    assert imported.renamed == [("dataset photos", "photos-2")]
    assert Dataset.objects.count() == 2
    assert imported.dataset.content_hash == Dataset.objects.get(slug="photos").content_hash


def test_a_dry_run_of_a_bundle_writes_nothing(tmp_path, settings, owner, capsys):
    path = make_foreign_bundle(tmp_path, settings, "dataset", "photos@1")
    call_command("import_snapshot", str(path), "--dry-run", "--user", owner.username)
    assert "photos@1: would be imported" in capsys.readouterr().out
    assert not Dataset.objects.exists()
    assert not Asset.objects.exists()


def test_a_draft_cannot_be_bundled(tmp_path):
    make_numbered_items("draft", 2, approved=False)
    with pytest.raises(CommandError, match="draft@1 is a draft: approve it first"):
        write_bundle(tmp_path, "dataset", "draft@1")
    assert not list(tmp_path.glob("*.zip"))


# --- designs ----------------------------------------------------------------------------------------------------------


def test_an_imported_design_is_a_draft_without_trials_and_with_placeholder_models(tmp_path, settings, owner):
    def make():
        Experiment.objects.filter(pk=make_study().pk).update(graders=["strict"], spent_usd=3)

    imported = import_snapshot(make_foreign_bundle(tmp_path, settings, "design", "pilot", make), owner)
    experiment = imported.experiment
    assert (experiment.slug, experiment.status, experiment.imported_from) == ("pilot", "draft", "")
    assert (experiment.owner, experiment.spent_usd, experiment.samples) == (owner, 0, 2)
    assert (Run.objects.count(), Trial.objects.count(), Item.objects.count()) == (0, 0, 4)
    assert set(experiment.language_models.values_list("name", "is_active")) == {("small", False), ("large", False)}
    assert (experiment.dataset.status, experiment.prompts.get().status) == ("approved", "imported")
    assert experiment.dimensions.get().name == "joy"
    assert experiment.graders == []
    assert imported.notes == [
        "Judges that are not in the file were left out of the design: strict.",
        f"A curator must approve these before they are used: prompt {experiment.prompts.get()}.",
        "Models without an active endpoint: large, small. Choose models of this site before the launch.",
    ]
    with pytest.raises(PlanError):
        plan(experiment, by=owner)


def test_an_imported_design_uses_existing_parts_of_this_site(tmp_path, owner):
    original = make_study()
    imported = import_snapshot(write_bundle(tmp_path, "design", "pilot"), owner)
    experiment = imported.experiment
    assert imported.renamed == [("experiment pilot", "pilot-2")]
    assert experiment.dataset == original.dataset
    assert set(experiment.language_models.all()) == set(original.language_models.all())
    assert (Dataset.objects.count(), Prompt.objects.count(), Sampler.objects.count()) == (1, 1, 1)
    assert f"The dataset {original.dataset} is here already and is used." in imported.notes
    Experiment.objects.filter(pk=experiment.pk).update(max_usd=None)
    assert plan(Experiment.objects.get(pk=experiment.pk), by=owner)


def test_a_model_with_the_same_name_but_a_different_id_is_not_used(tmp_path, settings, owner):
    path = make_foreign_bundle(tmp_path, settings, "design", "pilot")
    factories.make_model("small", model="another-model")
    imported = import_snapshot(path, owner)
    assert ("language model small", "small-2") in imported.renamed
    assert LanguageModel.objects.get(name="small-2").model != "another-model"


# --- analyses and studies ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_analysis_bundle_contains_scope_tables_and_source_rows(tmp_path, capsys):
    make_study()
    contents = read_parts(write_bundle(tmp_path, "analysis", "pilot", "--query", "measure=joy&missing=wrong"))
    scope = json.loads(contents["analysis/scope.json"])
    assert (scope["measure"]["key"], scope["missing"], len(scope["conditions"])) == ("joy", "wrong", 2)
    call_command("analyse", "pilot", "--table", "descriptives", "--format", "csv", "--missing", "wrong")
    assert contents["analysis/descriptives.csv"].decode() == capsys.readouterr().out
    assert json.loads(contents["analysis/descriptives.json"])["rows"]
    scores = [line.split(",") for line in contents["analysis/item_scores.csv"].decode().splitlines()]
    assert len(scores) == 1 + 4 * 2
    assert len(contents["tables/trials.jsonl"].splitlines()) == 16
    assert verify(tmp_path / "analysis.zip").problems == []


@pytest.mark.slow
def test_an_imported_analysis_can_be_computed_again_with_the_same_numbers(tmp_path, settings, owner):
    path = make_foreign_bundle(tmp_path, settings, "analysis", "pilot")
    imported = import_snapshot(path, owner)
    assert (imported.experiment.status, imported.experiment.imported_from) == ("active", "snapshot")
    second_bundle = write_bundle(tmp_path, "analysis", "pilot")
    names = [name for name in read_parts(path) if name.startswith(("analysis/", "rows/"))]
    assert [read_parts(second_bundle)[name] for name in names] == [read_parts(path)[name] for name in names]


@pytest.mark.slow
def test_a_bundle_of_a_whole_study_is_an_unrecorded_snapshot(tmp_path, capsys):
    experiment = make_study()
    call_command("verify_snapshot", str(write_bundle(tmp_path, "all", "pilot")))
    assert "rows: unchanged" in capsys.readouterr().out
    assert not experiment.snapshots.exists()


@pytest.mark.slow
def test_an_analysis_without_a_score_or_with_a_wrong_scope_is_refused(tmp_path):
    make_study()
    with pytest.raises(CommandError, match="--query: measure"):
        write_bundle(tmp_path, "analysis", "pilot", "--query", "measure=nothing")
    factories.make_experiment("empty")
    with pytest.raises(CommandError, match="no score yet"):
        write_bundle(tmp_path, "analysis", "empty")


# --- hostile files ----------------------------------------------------------------------------------------------------


def test_tables_that_do_not_belong_to_the_kind_are_refused(tmp_path, settings, owner):
    path = make_foreign_bundle(tmp_path, settings, "design", "pilot")
    claimed = json.dumps({"schema": 5, "kind": "dataset"}).encode()
    with pytest.raises(SnapshotFileError, match="holds unknown rows: rows/grading_app_grader"):
        import_snapshot(write_forged_copy(path, tmp_path, {"schema.json": claimed}), owner)
    unknown = json.dumps({"schema": 5, "kind": "everything"}).encode()
    with pytest.raises(SnapshotFileError, match="of the unknown kind 'everything'"):
        import_snapshot(write_forged_copy(path, tmp_path, {"schema.json": unknown}), owner)
    assert not Dataset.objects.exists()


def test_a_bundle_that_claims_to_be_a_snapshot_is_refused(tmp_path, settings, owner):
    path = make_foreign_bundle(tmp_path, settings, "dataset", "photos@1")
    with pytest.raises(SnapshotFileError):
        import_snapshot(write_forged_copy(path, tmp_path, {"schema.json": b'{"schema": 5}'}), owner)
    assert not Dataset.objects.exists()


def test_the_dataset_hash_detects_changed_items_with_matching_checksums(tmp_path, settings, owner):
    path = make_foreign_bundle(tmp_path, settings, "dataset", "photos@1")
    name = "rows/datasets_app_norm.jsonl"
    with pytest.raises(SnapshotFileError, match="are not what its hash says"):
        import_snapshot(
            write_forged_copy(path, tmp_path, {name: read_parts(path)[name].replace(b"2.5", b"5.5")}), owner
        )
    assert not Dataset.objects.exists()


def test_a_bundle_needs_exactly_one_dataset(tmp_path, settings, owner):
    path = make_foreign_bundle(tmp_path, settings, "dataset", "photos@1")
    empty = {name: b"" for name in read_parts(path) if name.startswith("rows/")}
    with pytest.raises(SnapshotFileError, match="holds 0 rows of datasets_app_dataset instead of one"):
        import_snapshot(write_forged_copy(path, tmp_path, empty), owner)


def test_a_truncated_bundle_is_refused(tmp_path, settings, owner):
    path = make_foreign_bundle(tmp_path, settings, "dataset", "photos@1")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(SnapshotFileError, match="is not a complete snapshot"):
        import_snapshot(path, owner)


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_pages_link_to_bundles_and_refusals_suggest_an_action(client, settings):
    experiment = make_study(status="running")
    client.force_login(experiment.owner)
    design = reverse("experiment_bundle", args=["pilot", "design"])
    assert design in client.get(experiment.get_absolute_url()).content.decode()
    dataset = reverse("dataset_bundle", args=["photos", 1])
    assert dataset in client.get(experiment.dataset.get_absolute_url()).content.decode()
    for kind in ("analysis", "all"):
        response = client.get(reverse("experiment_bundle", args=["pilot", kind]), follow=True)
        assert "is running; pause it" in response.content.decode()
    draft = make_numbered_items("draft", 2, approved=False)
    assert reverse("dataset_bundle", args=["draft", 1]) not in client.get(draft.get_absolute_url()).content.decode()
    response = client.get(reverse("dataset_bundle", args=["draft", 1]), follow=True)
    assert "draft@1 is a draft: approve it first" in response.content.decode()
    assert client.get(reverse("experiment_bundle", args=["pilot", "secrets"])).status_code == 404


def test_bundles_of_private_experiments_are_not_found(client):
    make_study()
    client.force_login(factories.make_user("stranger", permissions.RESEARCHER))
    for kind in ("design", "analysis", "all"):
        assert client.get(reverse("experiment_bundle", args=["pilot", kind])).status_code == 404
    client.force_login(factories.make_user("viewer", permissions.VIEWER))
    assert client.get(reverse("dataset_bundle", args=["photos", 1])).status_code == 404


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_download_is_written_by_a_separate_process_and_can_be_imported(client, tmp_path, owner, settings):
    settings.DATA_DIR = tmp_path
    experiment = make_study()
    client.force_login(experiment.owner)
    analysis = client.get(reverse("experiment_bundle", args=["pilot", "analysis"]), {"measure": "joy"})
    assert 'filename="pilot-analysis.zip"' in analysis["Content-Disposition"]
    (tmp_path / "sent.zip").write_bytes(b"".join(analysis.streaming_content))
    assert verify(tmp_path / "sent.zip").problems == []
    assert import_snapshot(tmp_path / "sent.zip", owner).experiment.slug == "pilot-2"
