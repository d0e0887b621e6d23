"""Snapshots: exact tables with a card of counts, reproducible to the byte, frozen and verifiable."""

import hashlib
import io
import json
import zipfile

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.urls import reverse

from evalsite.lib.ops.versions import get_commit, get_version
from evalsite.lib.stats import wilson
from grading_app.grading.scoring import grade
from grading_app.models import Grading, Snapshot
from grading_app.publish.export.file_formats import TABLES, export_chunks
from grading_app.publish.export.snapshots import SnapshotError, make_snapshot
from grading_app.tasks import snapshot_experiment
from runs_app.models import Attempt, Run, Trial
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]


@shared_rows
def experiment():
    dataset = factories.make_dataset(items=3, source="Written here", licence="CC-BY-4.0")
    created = factories.make_experiment(dataset=dataset, samples=2)
    (run,) = factories.make_runs(created, status="done")
    factories.plan_trials(
        run,
        answer=lambda item, _, index: factories.build_failed_fields("server") if index else f"ANSWER: {item.target}",
    )
    for trial in run.trials.filter(status="done"):
        factories.make_attempt(trial, served_model="vendor/small-2026")
    created.manifests.create(content={"launch": {"by": "owner"}})
    grade(created, scorers=["numeric"], by="test")
    return created


def read_parts(snapshot):
    with zipfile.ZipFile(snapshot.path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_altered_copy(snapshot, tmp_path, **changes):
    """Return a copy of the file with changed content in some parts."""
    out = tmp_path / "altered.zip"
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in (read_parts(snapshot) | changes).items():
            archive.writestr(name, content)
    return out


def verify_file(path):
    output = io.StringIO()
    try:
        call_command("verify_snapshot", str(path), stdout=output)
    except CommandError as error:
        return error.returncode, output.getvalue()
    return 0, output.getvalue()


@pytest.mark.slow
def test_a_snapshot_contains_all_tables_conditions_manifests_and_the_design(experiment):
    contents = read_parts(make_snapshot(experiment, by=experiment.owner))
    for table in TABLES:
        assert contents[f"tables/{table}.jsonl"] == b"".join(export_chunks(experiment, table, "jsonl"))
    condition = experiment.conditions.get()
    assert json.loads(contents[f"conditions/{condition.condition_id}.json"]) == condition.content
    assert json.loads(contents[f"manifests/{experiment.manifests.get().pk}.json"]) == {"launch": {"by": "owner"}}
    assert b"experiment: pilot" in contents["design.yaml"]


@pytest.mark.slow
def test_the_card_counts_the_stored_rows(experiment):
    snapshot = make_snapshot(experiment, label="submission", reason="For the paper", by=experiment.owner)
    card = read_parts(snapshot)["study-card.md"].decode()
    (condition,) = snapshot.counts["trials"].values()
    assert condition == {"wave 0": {"done": 3, "failed": 3}}
    assert snapshot.counts["rows"]["gradings"] == Grading.objects.count() == 3
    assert snapshot.counts["calls"] == {"generate": {"ok": Attempt.objects.count()}}
    for output in (
        "For the paper",
        "CC-BY-4.0",
        "Written here",
        "vendor/small-2026",
        "| server | 3 |",
        "| trials | 6 |",
    ):
        assert output in card


@pytest.mark.slow
def test_facts_and_card_contain_the_version_and_results_with_methods(experiment):
    contents = read_parts(make_snapshot(experiment, by=experiment.owner))
    facts = json.loads(contents["facts.json"])
    assert facts["evalsite"] == {"version": get_version(), "commit": get_commit()}
    (line,) = facts["results"]["scores"]
    expected = wilson(3, 3)
    assert (line["measure"], line["mean"], line["method"]) == ("Number within tolerance", 1, "modified Wilson")
    assert (line["low"], line["high"]) == pytest.approx((expected.low, expected.high))
    card = contents["study-card.md"].decode()
    assert f"| evalsite | {get_version()} |" in card
    assert "| Number within tolerance | small | 3 | 3 | 3 | 1 | 0 | 0.4385 to 1 | modified Wilson |" in card


@pytest.mark.slow
def test_the_card_of_a_rating_study_has_norm_results_and_no_grades_section():
    items = [{**factories.build_question(at), "norms": {"valence": 1 + at}} for at in range(6)]
    created = factories.make_experiment(
        dataset=factories.make_dataset("photos", items), dimensions=[factories.make_dimension("valence")]
    )
    (run,) = factories.make_runs(created, status="done")
    rated = [2, 1, 3, 5, 4, 6]
    factories.plan_trials(run, answer=lambda item, *_: {"answer": "x", "rating": rated[item.position]})
    contents = read_parts(make_snapshot(created, by="test"))
    results = json.loads(contents["facts.json"])["results"]
    (line,), (norm,) = results["scores"], results["norms"]
    assert (line["mean"], line["is_share"]) == (3.5, False)
    assert 1 < line["low"] < 3.5 < line["high"] < 7
    assert "score interval" in line["method"]
    assert (norm["items"], norm["r"], norm["difference"]) == pytest.approx((6, 0.8857142857, 0))
    card = contents["study-card.md"].decode()
    assert "## Ratings" in card
    assert "## Grades" not in card
    assert "| valence | ratings | 6 |" in card


@pytest.mark.slow
def test_equal_rows_give_byte_identical_tables(experiment):
    first, second = (make_snapshot(experiment, label=label, by="test") for label in ("one", "two"))
    tables = [
        {name: part for name, part in read_parts(made).items() if name.startswith("tables/")}
        for made in (first, second)
    ]
    assert tables[0] == tables[1]
    assert first.digest != second.digest
    sums = read_parts(first)["SHA256SUMS"]
    assert hashlib.sha256(sums).hexdigest() == first.digest
    assert {line.split("  ")[1] for line in sums.decode().splitlines()} == set(read_parts(first)) - {"SHA256SUMS"}


@pytest.mark.slow
def test_an_intact_snapshot_is_verified_and_its_digest_printed(experiment):
    snapshot = make_snapshot(experiment, by="test")
    code, output = verify_file(snapshot.path)
    assert code == 0
    assert output.startswith(snapshot.digest)
    with pytest.raises(CommandError) as caught:
        call_command("verify_snapshot", str(snapshot.path), "--digest", "0" * 64, stdout=io.StringIO())
    assert caught.value.returncode == 1


@pytest.mark.slow
def test_a_changed_row_is_detected(experiment, tmp_path):
    snapshot = make_snapshot(experiment, by="test")
    table = read_parts(snapshot)["tables/trials.jsonl"].replace(b'"status":"failed"', b'"status":"done"', 1)
    code, output = verify_file(write_altered_copy(snapshot, tmp_path, **{"tables/trials.jsonl": table}))
    assert code == 1
    assert "tables/trials.jsonl: its content does not match its checksum" in output
    assert "done: the card says 3, the tables 4" in output


@pytest.mark.slow
def test_a_changed_row_with_a_corrected_checksum_contradicts_the_card(experiment, tmp_path):
    snapshot = make_snapshot(experiment, by="test")
    contents = read_parts(snapshot)
    table = b"".join(contents["tables/gradings.jsonl"].splitlines(keepends=True)[1:])
    was, now = (hashlib.sha256(text).hexdigest() for text in (contents["tables/gradings.jsonl"], table))
    sums = contents["SHA256SUMS"].decode().replace(was, now)
    code, output = verify_file(
        write_altered_copy(snapshot, tmp_path, **{"tables/gradings.jsonl": table, "SHA256SUMS": sums})
    )
    assert code == 1
    assert "rows / gradings: the card says 3, the tables 2" in output


@pytest.mark.slow
def test_an_added_part_is_reported(experiment, tmp_path):
    snapshot = make_snapshot(experiment, by="test")
    code, output = verify_file(write_altered_copy(snapshot, tmp_path, **{"extra.txt": b"?"}))
    assert (code, "extra.txt: not in the checksums" in output) == (1, True)


def test_a_file_that_is_not_a_snapshot_is_bad_input(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"no zip")
    assert verify_file(tmp_path / "x.zip")[0] == 2
    assert verify_file(tmp_path / "none.zip")[0] == 2


@pytest.mark.slow
def test_the_row_of_a_snapshot_cannot_change(experiment):
    snapshot = make_snapshot(experiment, by="test")
    with pytest.raises(IntegrityError, match="frozen"), transaction.atomic():
        Snapshot.objects.filter(pk=snapshot.pk).update(label="another")
    assert experiment.history.filter(aspect="snapshot").get().actor == "test"


def test_a_running_experiment_cannot_be_snapshotted(experiment):
    Run.objects.update(status="running")
    with pytest.raises(SnapshotError, match="pilot is running; pause it"):
        make_snapshot(experiment, by="test")
    assert not Snapshot.objects.exists()


@pytest.mark.slow
def test_the_command_writes_the_file_and_prints_its_digest(experiment, tmp_path):
    output = io.StringIO()
    call_command("snapshot", "pilot", "--out", str(tmp_path / "a.zip"), "--label", "one", stderr=output)
    snapshot = Snapshot.objects.get()
    assert (tmp_path / "a.zip").read_bytes() == snapshot.path.read_bytes()
    assert snapshot.digest in output.getvalue()
    with pytest.raises(CommandError) as caught:
        call_command("snapshot", "nobody", "--out", "-")
    assert caught.value.returncode == 2


@pytest.mark.slow
def test_the_owner_creates_a_snapshot_on_the_page_and_readers_download_it(experiment, client, monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *args, **options: snapshot_experiment(*args))
    client.force_login(experiment.owner)
    page = client.post(reverse("snapshot_make", args=["pilot"]), {"label": "one", "reason": "To read"}, follow=True)
    snapshot = Snapshot.objects.get()
    assert (snapshot.label, snapshot.reason, snapshot.created_by) == ("one", "To read", experiment.owner)
    assert snapshot.digest[:16] in page.content.decode()
    answer = client.get(reverse("snapshot_file", args=["pilot", snapshot.digest]))
    assert b"".join(answer.streaming_content) == snapshot.path.read_bytes()
    client.force_login(factories.make_user("stranger", "Researcher"))
    assert client.get(reverse("snapshot_file", args=["pilot", snapshot.digest])).status_code == 404


@pytest.mark.parametrize("output", [{"reason": ""}, {"reason": "x" * 501}])
def test_a_snapshot_needs_a_reason(experiment, client, output):
    client.force_login(experiment.owner)
    page = client.post(reverse("snapshot_make", args=["pilot"]), output, follow=True)
    assert "Reason" in page.content.decode()
    assert not Snapshot.objects.exists()


@pytest.mark.slow
def test_a_snapshot_does_not_change_when_trials_are_reset(experiment):
    snapshot = make_snapshot(experiment, by="test")
    before = snapshot.path.read_bytes()
    Trial.objects.filter(status="failed").update(status="pending", error_class="", error="")
    later = make_snapshot(experiment, by="test")
    assert snapshot.path.read_bytes() == before
    assert "failed" not in later.counts
    assert verify_file(snapshot.path)[0] == verify_file(later.path)[0] == 0
