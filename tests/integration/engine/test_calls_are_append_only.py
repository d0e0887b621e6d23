"""Calls, the ledger, done trials and the history are append-only, even for bare SQL."""

from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction

from evalsite.lib.history import StatusChange, record_changes
from runs_app import deletion
from runs_app.llm.calls import LOST
from runs_app.models import Attempt, DeletedRun, LedgerEntry, Preflight, Trial
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


def execute_refused(sql):
    statements = f"SET CONSTRAINTS ALL IMMEDIATE; {sql}"  # TRUNCATE is refused while checks are deferred.
    with pytest.raises(IntegrityError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statements)
    return str(caught.value)


def count_rows():
    return [kind.objects.count() for kind in (Trial, Attempt, LedgerEntry, StatusChange)]


@shared_rows
def experiment():
    """An experiment with one run of three done trials, each with its call, and a change in its history."""
    created = factories.make_experiment()
    (run,) = factories.make_runs(created, status="done")
    for trial in factories.plan_trials(run, answer=lambda *_: "four"):
        factories.make_attempt(trial, cost_usd=Decimal("0.001"))
    record_changes([(run, "running", "done")], by=created.owner, reason="all trials are in")
    return created


STATEMENTS = [
    ("UPDATE runs_app_attempt SET cost_usd = 0", "never changes"),
    ("UPDATE runs_app_attempt SET outcome = 'late'", "never changes"),
    ("DELETE FROM runs_app_attempt", "experiment delete NAME"),
    ("TRUNCATE runs_app_attempt", "experiment delete NAME"),
    ("DELETE FROM runs_app_trial", "still has attempts"),
    ("UPDATE runs_app_ledgerentry SET paid_usd = 0", "the ledger follows its calls"),
    (
        "INSERT INTO runs_app_ledgerentry (run_id, at, session) SELECT id, now(), 7 FROM runs_app_run",
        "the ledger follows its calls",
    ),
    ("DELETE FROM runs_app_ledgerentry", "part of the ledger"),
    ("TRUNCATE runs_app_ledgerentry", "experiment delete NAME"),
    ("UPDATE lib_statuschange SET reason = 'another'", "history is append-only"),
    ("UPDATE lib_statuschange SET actor = 'nobody', by_id = NULL", "history is append-only"),
    ("DELETE FROM lib_statuschange", "history is append-only"),
    ("TRUNCATE lib_statuschange", "history is append-only"),
]


@pytest.mark.parametrize(("statement", "reason"), STATEMENTS)
def test_bare_sql_is_refused_with_a_reason(experiment, statement, reason):
    before = count_rows()
    assert reason in execute_refused(statement)
    assert count_rows() == before
    assert not Attempt.objects.exclude(cost_usd=Decimal("0.001")).exists()


def test_a_done_trial_without_calls_cannot_be_deleted():
    (run,) = factories.make_runs(factories.make_experiment())
    factories.plan_trials(run, answer=lambda *_: "four")
    assert "it goes only with its run or its experiment" in execute_refused("DELETE FROM runs_app_trial")


def test_pending_trials_can_be_deleted():
    (run,) = factories.make_runs(factories.make_experiment())
    factories.plan_trials(run)
    assert run.trials.all().delete()[0] == 3


def test_a_late_answer_completes_only_its_own_lost_call(experiment):
    trial = Trial.objects.first()
    lost_attempt = factories.make_attempt(trial, outcome="lost", cost_usd=None)
    update = f"UPDATE runs_app_attempt SET outcome = 'late', trial_id = {trial.pk + 1} WHERE id = {lost_attempt.pk}"
    assert "never changes" in execute_refused(update)
    assert Attempt.objects.filter(pk=lost_attempt.pk).update(outcome="late", cost_usd=Decimal("0.002")) == 1
    assert "never changes" in execute_refused(f"UPDATE runs_app_attempt SET cost_usd = 0 WHERE id = {lost_attempt.pk}")


def test_a_finished_preflight_cannot_change_and_is_deleted_only_with_its_experiment(experiment):
    preflight = factories.make_preflight(factories.make_model(), experiment=experiment)
    factories.make_preflight(factories.make_model())
    for change in (
        "status = 'waiting'",
        "status = 'dead'",
        "cost_usd = 1",
        "model_id = 0",
        "actor = 'x'",
        "error = 'x'",
    ):
        assert "never changes" in execute_refused(f"UPDATE runs_app_preflight SET {change} WHERE id = {preflight.pk}")
    assert "goes only with its experiment" in execute_refused("DELETE FROM runs_app_preflight")
    assert "experiment delete NAME" in execute_refused("TRUNCATE runs_app_preflight")
    deletion.delete(experiment, by="owner", reason="no longer needed")
    assert Preflight.objects.get().experiment is None


def test_a_preflight_advances_and_keeps_its_author():
    someone = factories.make_user("someone")
    (requested,) = Preflight.objects.request([factories.make_model().pk], by=someone)
    row = Preflight.objects.filter(pk=requested.pk)
    assert "never changes" in execute_refused(f"UPDATE runs_app_preflight SET actor = 'x' WHERE id = {requested.pk}")
    row.update(status="running", started_at=factories.NOON)
    for change in ("status = 'waiting'", "started_at = now()", "asked_at = now()"):
        assert "never changes" in execute_refused(f"UPDATE runs_app_preflight SET {change} WHERE id = {requested.pk}")
    row.update(status="unverified", error_class=LOST, finished_at=factories.NOON)
    assert "never changes" in execute_refused(
        f"UPDATE runs_app_preflight SET status = 'running' WHERE id = {requested.pk}"
    )
    row.update(status="ok", error_class="", cost_usd=Decimal("0.001"))
    assert "never changes" in execute_refused(f"UPDATE runs_app_preflight SET cost_usd = 0 WHERE id = {requested.pk}")
    someone.delete()
    assert (row.get().by, row.get().actor) == (None, "someone")


def test_a_preflight_without_a_call_can_be_deleted():
    Preflight.objects.request([factories.make_model().pk], by="owner")
    assert Preflight.objects.all().delete()[0] == 1


def test_deleting_an_experiment_deletes_exactly_its_own_rows(experiment):
    other = factories.make_experiment("other", dataset=experiment.dataset)
    (run,) = factories.make_runs(other, status="done")
    for trial in factories.plan_trials(run, answer=lambda *_: "four"):
        factories.make_attempt(trial, cost_usd=Decimal("0.001"))
    deletion.delete(experiment, by="owner", reason="no longer needed")
    assert set(Trial.objects.values_list("run__experiment", flat=True)) == {other.pk}
    assert Attempt.objects.count() == 3
    assert StatusChange.objects.filter(to_value="done").exists()
    assert not LedgerEntry.objects.exclude(run=run).exists()
    assert "still has attempts" in execute_refused("DELETE FROM runs_app_trial")


def test_permission_to_delete_an_experiment_does_not_extend_to_others(experiment):
    other = factories.make_experiment("other", dataset=experiment.dataset)
    with other.permit_deletion():
        assert "experiment delete NAME" in execute_refused("DELETE FROM runs_app_attempt")
    with experiment.permit_deletion():
        Attempt.objects.all().delete()
        Trial.objects.all().delete()
    assert not Trial.objects.exists()


def test_permission_to_delete_ends_with_its_block(experiment):
    with experiment.permit_deletion():
        pass
    assert "experiment delete NAME" in execute_refused("DELETE FROM runs_app_attempt")


def test_history_survives_the_deletion_of_its_author(experiment):
    someone = factories.make_user("someone")
    record_changes([(experiment, "", "created")], by=someone, reason="")
    someone.delete()
    change = StatusChange.objects.get(to_value="created")
    assert (change.by, change.actor) == (None, "someone")


def test_deleting_a_run_keeps_its_cost(experiment):
    deletion.delete_run(experiment.runs.get(), by="owner", reason="asked by mistake")
    assert not Trial.objects.exists()
    for statement in ("UPDATE runs_app_deletedrun SET spent_usd = 0", "DELETE FROM runs_app_deletedrun"):
        assert "what a deleted run cost" in execute_refused(statement)
    deletion.delete(experiment, by="owner", reason="no longer needed")
    assert not DeletedRun.objects.exists()
