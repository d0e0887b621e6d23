"""The retention rule removes raw responses of finished, graded experiments, and keeps everything that is promised."""

import hashlib
import io
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import override_settings

from evalsite.lib.history import StatusChange
from grading_app.grading.consistency_check import compare_counters
from grading_app.grading.retention import find_due, remove_raw_responses
from grading_app.grading.scoring import grade
from grading_app.models import Grading
from grading_app.publish.export.file_formats import export_chunks
from grading_app.publish.export.snapshot_check import verify
from grading_app.publish.export.snapshots import make_snapshot
from grading_app.tasks import apply_retention_rule
from runs_app import run_control
from runs_app.models import Attempt, Experiment, LedgerEntry, Run, Trial
from tests import factories
from tests.factories.engine import build_reply, drain
from tests.factories.imports import import_snapshot
from tests.factories.judges import write_ledger

THOUGHT = "<think>two and two</think>4"
SHA256 = hashlib.sha256(THOUGHT.encode()).hexdigest()

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]


def make_finished(slug="old", **fields):
    """Return an experiment whose answers have a raw response of their own, and a call that the trial does not store."""
    dataset = factories.make_dataset(f"{slug}-items", approved=False)
    dataset.approve(by="test", reason="ready")
    experiment = factories.make_experiment(slug, dataset=dataset, scorers=["numeric"], **fields)
    (run, *others) = factories.make_runs(experiment, status="done")
    Run.objects.filter(pk__in=[other.pk for other in others]).update(finished_at=factories.NOON)
    trials = factories.plan_trials(
        run, answer=lambda *_: {"answer": "4", "reasoning": "two and two", "raw_response": THOUGHT}
    )
    write_ledger(experiment)
    rerun = {"outcome": "transient", "cost_usd": Decimal(0), "input_tokens": 0, "output_tokens": 0}
    factories.make_attempt(trials[0], error_class="empty_answer", raw_response=THOUGHT, **rerun)
    Run.objects.filter(pk=run.pk).update(finished_at=factories.NOON, n_attempts=4, errors={"empty_answer": 1})
    grade(experiment, by="test")
    return experiment


def find_differences():
    return compare_counters()


def execute_refused(sql):
    with pytest.raises(IntegrityError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    return str(caught.value)


def test_the_rule_keeps_everything_but_the_raw_text(client):
    experiment = make_finished()
    kept = ("answer", "reasoning", "input_tokens", "output_tokens", "cost_usd", "status", "completed_at")
    before = list(experiment.runs.get().trials.order_by("pk").values_list(*kept))
    scores = list(Grading.objects.order_by("pk").values_list("trial", "score", "score_raw"))
    ledger = LedgerEntry.objects.filter(attempts__gt=0).count()
    differences = find_differences()

    assert remove_raw_responses(30, by="test") == len(before) + 1

    trials = experiment.runs.get().trials.order_by("pk")
    assert list(trials.values_list(*kept)) == before
    assert set(trials.values_list("raw_response", "raw_sha256")) == {(None, SHA256)}
    assert not trials.filter(raw_removed_at=None).exists()
    assert Attempt.objects.get(outcome="transient").raw_sha256 == SHA256
    assert LedgerEntry.objects.filter(attempts__gt=0).count() == ledger
    assert find_differences() == differences == []
    grade(experiment, force=True, by="test")
    assert list(Grading.objects.order_by("pk").values_list("trial", "score", "score_raw")) == scores
    change = StatusChange.objects.get(aspect="raw responses")
    assert (change.to_value, change.actor, change.reason) == (f"{len(before) + 1} removed", "test", "after 30 days")

    client.force_login(experiment.owner)
    page = client.get(trials[0].get_absolute_url()).content.decode()
    assert "The raw response was removed" in page
    assert SHA256 in page
    assert f"{trials[0].raw_removed_at:%-d %B %Y}" in page
    assert client.get(f"{trials[0].get_absolute_url()}text/response/").status_code == 404


def test_exports_and_snapshots_say_what_was_removed_and_import_again():
    experiment = make_finished()
    remove_raw_responses(30, by="test")
    (line,) = {chunk.split(b"\n")[0] for chunk in export_chunks(experiment, "trials", "jsonl")}
    assert b'"raw_response":null' in line
    assert f'"raw_response_sha256":"{SHA256}"'.encode() in line
    snapshot = make_snapshot(experiment, by="test")
    verdict = verify(snapshot.path)
    assert verdict.problems == []
    assert snapshot.counts["removed"]["raw responses of trials"] == Trial.objects.count()
    imported = import_snapshot(snapshot.path, experiment.owner).experiment
    assert set(Trial.objects.filter(run__experiment=imported).values_list("raw_sha256", flat=True)) == {SHA256}
    assert verify(make_snapshot(imported, by="test").path).content == verdict.content
    assert find_differences() == []


def test_every_run_of_the_experiment_must_have_ended():
    factories.make_experiment("first", dataset=factories.make_dataset("unused"))  # Keys of experiments and runs differ.
    experiment = make_finished(models=[factories.make_model("small"), factories.make_model("large")])
    last = experiment.runs.last()
    Run.objects.filter(pk=last.pk).update(status="paused")
    assert list(find_due(30)) == []
    Run.objects.filter(pk=last.pk).update(status="cancelled")
    assert list(find_due(30)) == [experiment]


@pytest.mark.parametrize(
    "state", [{"status": "running"}, {"status": "paused"}, {"status": "stopped"}, {"finished_at": None}]
)
def test_an_experiment_that_has_not_ended_keeps_its_raw_responses(state):
    Run.objects.filter(experiment=make_finished()).update(**state)
    assert list(find_due(30)) == []
    assert remove_raw_responses(30, by="test") == 0


def test_answers_that_are_not_graded_keep_their_raw_responses():
    experiment = make_finished()
    Experiment.objects.filter(pk=experiment.pk).update(scorers=["numeric", "exact_match"])
    assert remove_raw_responses(30, by="test") == 0
    grade(Experiment.objects.get(), by="test")
    assert remove_raw_responses(30, by="test") > 0


def test_only_raw_responses_older_than_the_days_of_the_rule_are_removed():
    make_finished()
    assert remove_raw_responses(100_000, by="test") == 0


@pytest.mark.parametrize(
    "change",
    [
        "raw_response = NULL",
        "raw_response = NULL, raw_sha256 = repeat('0', 64), raw_removed_at = now()",
        f"raw_response = NULL, raw_sha256 = '{SHA256}', raw_removed_at = now() - interval '1 day'",
        f"raw_response = NULL, raw_sha256 = '{SHA256}', raw_removed_at = now(), answer = '5'",
        "raw_response = 'another'",
    ],
)
def test_the_database_refuses_any_other_change(change):
    make_finished()
    for table, rule in (("runs_app_trial", "it never changes"), ("runs_app_attempt", "it never changes")):
        if "answer" in change and table == "runs_app_attempt":
            change = change.replace("answer = '5'", "cost_usd = 5")
        assert rule in execute_refused(f"UPDATE {table} SET {change} WHERE raw_response IS NOT NULL")
    remove_raw_responses(30, by="test")
    assert "it never changes" in execute_refused(f"UPDATE runs_app_trial SET raw_response = '{THOUGHT}'")


def test_the_rule_is_off_by_default_and_runs_as_a_task_with_the_setting():
    make_finished()
    assert apply_retention_rule() == 0
    with override_settings(RAW_RESPONSE_DAYS=30):
        assert apply_retention_rule() > 0
    assert StatusChange.objects.get(aspect="raw responses").actor == "retention rule"


def test_a_dry_run_counts_rows_and_bytes_and_removes_nothing():
    experiment = make_finished()
    output = io.StringIO()
    call_command("raw_responses", "remove", "--days", "30", "--dry-run", stdout=output)
    rows = Trial.objects.count() + 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_column_size(raw_response) FROM runs_app_trial LIMIT 1")
        assert f"{experiment}: {rows} rows, {cursor.fetchone()[0] * rows}\xa0bytes" in output.getvalue()
    assert not Trial.objects.exclude(raw_sha256="").exists()
    with pytest.raises(CommandError, match="--days"):
        call_command("raw_responses", "remove")
    call_command("raw_responses", "remove", "--days", "30", "--yes", stdout=output)
    assert not Trial.objects.filter(raw_sha256="").exists()


def test_an_equal_request_reuses_an_answer_without_its_raw_response(transactional_db):
    async def call(request):
        return build_reply("4", raw_text=THOUGHT, reasoning="two and two", cost_usd=Decimal("0.01"))

    first = factories.make_experiment("first", max_usd=None)
    run_control.launch(first, by="test")
    drain(call)
    Run.objects.update(finished_at=factories.NOON)
    assert remove_raw_responses(30, by="test") == 3
    second = factories.make_experiment(
        "second", dataset=first.dataset, models=first.language_models.all(), prompts=first.prompts.all(),
        samplers=first.samplers.all(), max_usd=None,
    )  # fmt: skip
    run_control.launch(second, by="test")
    drain(call)
    reused = Trial.objects.filter(run__experiment=second)
    assert set(reused.values_list("answer", "reasoning", "from_cache", "cost_usd")) == {
        ("4", "two and two", True, Decimal(0))
    }
    assert {(trial.raw_text, trial.raw_sha256, trial.raw_removed_at) for trial in reused} == {(None, SHA256, None)}
