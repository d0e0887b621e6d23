"""Import of a snapshot: the same rows and results under new keys, and nothing overwritten."""

import hashlib
import io
import json
import shutil
import zipfile
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import override_settings
from django.urls import reverse

from datasets_app.importing.records import FileError
from datasets_app.models import Asset, Dataset, Item
from grading_app.grading.scoring import grade
from grading_app.models import GradeCondition, Grading, Panel, Preference, Rating, RatingQueue
from grading_app.models.gradings import allow_superseding
from grading_app.publish.export.snapshot_check import SCHEMA, SnapshotFileError, verify
from grading_app.publish.export.snapshots import make_snapshot
from runs_app.models import Attempt, Endpoint, Experiment, LanguageModel, Prompt, Run, Trial
from runs_app.models.annotations import annotate
from tests import factories
from tests.factories.imports import import_snapshot
from tests.factories.judges import make_grader, write_ledger
from tests.factories.queues import make_answer_queue, make_numbered_items, make_rater, make_strict_rubric, rate_all
from tests.shared_rows import shared_rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]
RECORDED = Path(__file__).parent / "snapshots"


def make_study():
    """Return answers of two models on photographs, graded by a rule, a judge and a person, with a comparison."""
    dataset = make_numbered_items("photos", 4, images=True, approved=False)
    dataset.approve(by="test", reason="ready")
    experiment = factories.make_experiment(
        dataset=dataset, samples=2, models=[factories.make_model("small"), factories.make_model("large")]
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(
            run,
            answer=lambda item, _, index: factories.build_failed_fields("server") if index else f"{item.key} {NASTY}",
        )
    write_ledger(experiment)
    Run.objects.update(n_attempts=8)  # Failed trials made calls too.
    grade(experiment, scorers=["numeric"], by="test")
    judge = GradeCondition.objects.create(
        experiment=experiment,
        grade_condition_id="judge--1",
        kind="judge",
        grader=(one := make_grader()),
        rubric=one.rubric,
    )
    done = list(Trial.objects.filter(status="done").order_by("pk"))
    Grading.objects.bulk_create([Grading(trial=each, condition=judge, score=0.5, parse_ok=True) for each in done])
    with allow_superseding():
        Grading.objects.filter(trial=done[0], condition=judge).update(score=0.75)
    Preference.objects.create(condition=judge, trial_a=done[0], trial_b=done[-1], winner="a")
    queue = make_answer_queue("reading", experiment=experiment, dimensions=[], by=make_strict_rubric("score"))
    rate_all(make_rater(queue, started=True))
    panel = Panel.objects.create(name="both", rule="mean")
    panel.graders.set([one])
    GradeCondition.objects.create(
        experiment=experiment, grade_condition_id="both--1", kind="panel", panel=panel,
        parameters={"rule": "mean", "members": [judge.pk]},
    )  # fmt: skip
    draft = make_strict_rubric("label", status="draft")
    make_answer_queue("unfinished", experiment=experiment, dimensions=[], by=draft, opened=False)
    annotate(done[0], "note", "Look at this", by=experiment.owner)
    experiment.manifests.create(content={"launch": {"by": "owner"}})
    return experiment


NASTY = 'back\\slash \\n "quoted" \t 模型 \u2028'


@pytest.fixture(scope="module")
def snapshot_file(django_db_setup, django_db_blocker, tmp_path_factory):
    """Return the snapshot file of a study whose rows and images were deleted."""
    folder = tmp_path_factory.mktemp("other_site")
    with django_db_blocker.unblock(), override_settings(MEDIA_ROOT=folder / "media"), transaction.atomic():
        snapshot = make_snapshot(make_study(), by="test")
        shutil.copy(snapshot.path, folder / "sent.zip")
        transaction.set_rollback(True)
    shutil.rmtree(folder / "media")
    return folder / "sent.zip"


@pytest.fixture
def foreign_snapshot(snapshot_file):
    """Return the snapshot file of another site's study."""
    assert not Experiment.objects.exists()
    return snapshot_file


@pytest.fixture
def owner():
    return factories.make_user("importer", "Researcher")


@shared_rows
def imported(snapshot_file):
    return import_snapshot(snapshot_file, factories.make_user("importer", "Researcher"))


@shared_rows
def imported_again(imported_of_file, snapshot_file):
    """Return the second import of the same file, beside the first."""
    return import_snapshot(snapshot_file, imported_of_file.experiment.owner)


def read_parts(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_forged_copy(path, tmp_path, **changes):
    """Return a tampered copy: changed parts with matching checksums."""
    contents = read_parts(path) | {name: content for name, content in changes.items()}
    contents = {name: content for name, content in contents.items() if content is not None and name != "SHA256SUMS"}
    sums = "".join(f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents))
    with zipfile.ZipFile(tmp_path / "altered.zip", "w") as archive:
        for name, content in (contents | {"SHA256SUMS": sums.encode()}).items():
            archive.writestr(name, content)
    return tmp_path / "altered.zip"


def test_an_imported_study_has_the_same_content_and_the_same_results(snapshot_file, imported):
    second_path = make_snapshot(imported.experiment, by="test").path
    assert verify(second_path).problems == []
    assert verify(second_path).content == verify(snapshot_file).content == imported.content
    before, after = (json.loads(read_parts(path)["facts.json"]) for path in (snapshot_file, second_path))
    assert after["results"] == before["results"]
    assert before["results"]["scores"]
    assert read_parts(second_path)["tables/items.jsonl"] == read_parts(snapshot_file)["tables/items.jsonl"]
    assert (Trial.objects.count(), Attempt.objects.count(), Asset.objects.count()) == (16, 16, 4)
    assert not Rating.objects.filter(value=None).exists()
    assert {NASTY in trial.answer for trial in Trial.objects.filter(status="done")} == {True}


def test_an_imported_study_never_makes_calls(imported):
    experiment = imported.experiment
    assert (experiment.imported_from, experiment.owner.username) == ("snapshot", "importer")
    assert experiment.sharing == "private"
    assert set(Run.objects.values_list("status", flat=True)) == {"done"}
    assert set(LanguageModel.objects.values_list("is_active", flat=True)) == {False}
    assert set(Endpoint.objects.values_list("is_active", "key_env", "base_url")) == {
        (False, "", "https://imported.invalid/v1")
    }
    assert RatingQueue.objects.get().status == "closed"
    assert not Rating.objects.get(position=1).assignment.user.is_active


def test_the_pages_of_an_imported_study_work(imported, client):
    experiment = imported.experiment
    client.force_login(experiment.owner)
    for name in ("experiment_detail", "experiment_results", "experiment_ledger", "experiment_agreement"):
        assert client.get(reverse(name, args=[experiment.slug])).status_code == 200
    trial = Trial.objects.filter(status="done").first()
    assert client.get(trial.get_absolute_url()).status_code == 200
    image = client.get(Item.objects.first().image.url)
    assert image.status_code == 200


@pytest.mark.django_db(transaction=True)
def test_the_counters_of_an_imported_study_agree_with_its_rows(foreign_snapshot, owner):
    import_snapshot(foreign_snapshot, owner)
    message = io.StringIO()
    call_command("reconcile", stdout=message)
    assert "counters and ledger agree with the rows" in message.getvalue()


def test_names_in_use_are_changed_and_nothing_is_overwritten(imported, imported_again):
    first, second, prompt = imported, imported_again, Prompt.objects.earliest("pk")
    assert (first.experiment.slug, second.experiment.slug) == ("pilot", "pilot-2")
    assert second.experiment.dataset.slug == "photos-2"
    assert sorted(Prompt.objects.values_list("name", "version")) == [(prompt.name, 1), (f"{prompt.name}-2", 1)]
    assert ("experiment pilot", "pilot-2") in second.renamed
    assert first.renamed == []
    contents = [verify(make_snapshot(one.experiment, by="test").path).content for one in (first, second)]
    assert contents[0] == contents[1] == first.content


def test_the_members_of_an_imported_panel_are_conditions_of_its_own_study(imported_again):
    for slug in ("pilot", "pilot-2"):
        rules = GradeCondition.objects.filter(experiment__slug=slug)
        assert rules.get(kind="panel").parameters["members"] == [rules.get(grade_condition_id="judge--1").pk]


def test_drafts_are_imported_as_drafts(owner, tmp_path, settings):
    settings.MEDIA_ROOT = tmp_path / "media"
    with transaction.atomic():
        dataset = make_numbered_items("unfinished", 2, approved=False)
        prompt = factories.make_prompt("unread", status="draft")
        experiment = factories.make_experiment("plan", dataset=dataset, prompts=[prompt])
        shutil.copy(make_snapshot(experiment, by="test").path, tmp_path / "sent.zip")
        transaction.set_rollback(True)
    import_snapshot(tmp_path / "sent.zip", owner)
    assert (Prompt.objects.get().status, Dataset.objects.get().status) == ("draft", "draft")


def test_a_dry_run_reports_everything_and_writes_nothing(foreign_snapshot, owner, settings):
    message = io.StringIO()
    call_command("import_snapshot", str(foreign_snapshot), "--dry-run", "--user", owner.username, stdout=message)
    assert "pilot: would be imported" in message.getvalue()
    assert "16 trials" in message.getvalue()
    assert not Experiment.objects.exists()
    assert not Dataset.objects.exists()
    assert not Asset.objects.exists()
    assert not (settings.MEDIA_ROOT / "assets").exists()


def test_the_command_imports_a_snapshot(foreign_snapshot, owner):
    message = io.StringIO()
    call_command("import_snapshot", str(foreign_snapshot), "--user", owner.username, stdout=message)
    assert "pilot: imported" in message.getvalue()
    assert Experiment.objects.get().history.filter(aspect="import").exists()


def test_the_command_for_studies_takes_a_snapshot_too(foreign_snapshot, owner):
    message = io.StringIO()
    call_command("import_study", str(foreign_snapshot), "--dry-run", "--user", owner.username, stdout=message)
    assert "pilot: would be imported" in message.getvalue()
    assert not Experiment.objects.exists()
    call_command("import_study", str(foreign_snapshot), "--user", owner.username, stdout=message)
    assert Experiment.objects.get().imported_from == "snapshot"


def test_a_changed_part_is_refused(foreign_snapshot, owner, tmp_path):
    contents = read_parts(foreign_snapshot)
    with zipfile.ZipFile(tmp_path / "changed.zip", "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content.replace(b'"answer":"', b'"answer":"!') if "rows/" in name else content)
    with pytest.raises(SnapshotFileError, match=r"rows/runs_app_trial.jsonl: its content does not match"):
        import_snapshot(tmp_path / "changed.zip", owner)
    with pytest.raises(CommandError) as caught:
        call_command("import_snapshot", str(tmp_path / "changed.zip"), "--user", owner.username)
    assert caught.value.returncode == 2


def change_first_line(content, /, **changes):
    line, other_lines = content.split(b"\n", 1)
    return json.dumps(json.loads(line) | changes).encode() + b"\n" + other_lines


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("rows/datasets_app_item.jsonl", {"input": "Another question"}, "not what its hash says"),
        ("rows/runs_app_prompt.jsonl", {"messages": []}, "not what its hash says"),
        ("rows/runs_app_trial.jsonl", {"item_id": 999}, "refers to a missing row"),
        ("rows/runs_app_trial.jsonl", {"id": 2}, "the database refuses"),
        ("rows/runs_app_trial.jsonl", {"status": "glorious"}, r"trial.jsonl, row 1: status is 'glorious', not one of"),
        ("rows/grading_app_grading.jsonl", {"score": "high"}, r"grading.jsonl, row 1: score is 'high', not a number"),
        (
            "rows/datasets_app_asset.jsonl",
            {"sha256": "../../x"},
            r"asset.jsonl, row 1: sha256 is '../../x', not a",
        ),
        ("rows/datasets_app_asset.jsonl", {"width": 1}, "not the image that its row describes"),
    ],
)
def test_rows_that_contradict_each_other_are_refused_even_with_matching_checksums(
    foreign_snapshot, owner, tmp_path, part, change, message
):
    altered = write_forged_copy(
        foreign_snapshot, tmp_path, **{part: change_first_line(read_parts(foreign_snapshot)[part], **change)}
    )
    with pytest.raises(FileError, match=message):
        import_snapshot(altered, owner)
    assert not Experiment.objects.exists()
    assert not Trial.objects.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema.json": b'{"schema": 99}'}, "schema 99, of a newer version"),
        ({"schema.json": b'{"schema": 4}'}, "schema 4, of an older version; make a new file on its site"),
        ({"schema.json": None}, "schema 1, of an older version"),
        ({"rows/auth_user.jsonl": b'{"id": 1, "is_superuser": true}\n'}, "unknown rows"),
        ({"names.json": b"{}"}, "names.json has no name for row 1 of datasets_app_dataset"),
        ({"names.json": b'{"datasets_app_dataset": {"1": 2}}'}, "names.json cannot be read: .* valid string"),
        ({"names.json": b"["}, "names.json cannot be read: Invalid JSON"),
        ({"names.json": None}, "altered.zip has no names.json"),
    ],
)
def test_unexpected_parts_are_refused(foreign_snapshot, owner, tmp_path, changes, message):
    with pytest.raises(FileError, match=message):
        import_snapshot(write_forged_copy(foreign_snapshot, tmp_path, **changes), owner)


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_PART", "MAX_PARTS"])
def test_an_archive_above_the_unpacked_size_limit_is_refused(foreign_snapshot, owner, monkeypatch, limit):
    monkeypatch.setattr(f"grading_app.study_import.snapshot_import.{limit}", 20)
    with pytest.raises(SnapshotFileError, match="too large"):
        import_snapshot(foreign_snapshot, owner)


def test_a_recorded_snapshot_is_verified_and_imported(owner, tmp_path, settings):
    settings.MEDIA_ROOT = tmp_path
    contents = verify(RECORDED / f"schema-{SCHEMA}.zip")
    assert (contents.problems, contents.schema) == ([], SCHEMA)
    assert import_snapshot(RECORDED / f"schema-{SCHEMA}.zip", owner).experiment.slug == "pilot"
    assert Trial.objects.count() == 16
