"""Ledger entries are written with every attempt, whichever code writes it, and equal the sums of the attempts."""

from decimal import Decimal

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import Sum

from grading_app.grading.consistency_check import find_differences
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, LedgerEntry, Run
from tests import factories
from tests.factories.engine import build_provider, drain
from tests.factories.tampering import allow_deletions, disable_triggers

PAID, LISTED = Decimal("0.001"), Decimal("0.004")


def sum_ledger(**filters):
    names = ("attempts", "answered", "reused", "paid_usd", "list_usd", "cache_saved_usd", "reuse_saved_usd", "unpriced")
    return LedgerEntry.objects.filter(**filters).aggregate(**{name: Sum(name) for name in names})


def test_every_call_is_entered_with_its_tokens_cost_and_list_price(run):
    drain(build_provider(cost_usd=PAID, list_usd=LISTED, cache_read_tokens=7, cache_write_tokens=2, reasoning_tokens=1))
    sums = sum_ledger()
    assert (sums["attempts"], sums["answered"], sums["unpriced"]) == (6, 6, 0)
    assert (sums["paid_usd"], sums["list_usd"], sums["cache_saved_usd"]) == (6 * PAID, 6 * LISTED, 6 * (LISTED - PAID))
    tokens = LedgerEntry.objects.aggregate(
        **{name: Sum(f"{name}_tokens") for name in ("input", "output", "reasoning", "cache_read", "cache_write")}
    )
    assert tokens == {"input": 60, "output": 30, "reasoning": 6, "cache_read": 42, "cache_write": 12}
    run.refresh_from_db()
    assert sums["paid_usd"] == run.spent_usd
    assert find_differences() == []


def test_the_saving_of_a_cached_answer_is_its_original_cost(run, experiment):
    drain(build_provider(cost_usd=PAID, list_usd=LISTED))
    repeated = factories.make_experiment(
        "again",
        dataset=experiment.dataset,
        models=list(experiment.language_models.all()),
        prompts=list(experiment.prompts.all()),
        samplers=list(experiment.samplers.all()),
        samples=2,
    )
    (second,) = factories.make_runs(repeated)
    factories.plan_trials(second)
    assert drain(build_provider(cost_usd=PAID)) == 6
    sums = sum_ledger(run=second)
    assert (sums["reused"], sums["answered"], sums["paid_usd"]) == (6, 0, 0)
    assert sums["reuse_saved_usd"] == sums["list_usd"] == 6 * PAID
    assert find_differences() == []


def test_savings_of_batches_and_caches_are_separate(run):
    trial = factories.plan_trials(factories.make_runs(run.experiment, wave=1)[0])[0]
    factories.make_attempt(trial, cost_usd=PAID, list_usd=LISTED, batched=True)
    factories.make_attempt(trial, cost_usd=PAID, list_usd=LISTED)
    sums = sum_ledger(run=trial.run)
    saved = LedgerEntry.objects.filter(run=trial.run).aggregate(batch=Sum("batch_saved_usd"))["batch"]
    assert saved == sums["cache_saved_usd"] == LISTED - PAID
    assert sums["list_usd"] == sums["paid_usd"] + saved + sums["cache_saved_usd"]


def test_calls_of_unknown_cost_are_counted_but_not_summed(run):
    async def send_garbage(request):
        raise CallFailure(ErrorClass.MALFORMED_REPLY, "the reply cannot be read", http_status=200)

    Run.objects.update(reserve_usd=Decimal("0.01"))
    type(run.experiment).objects.update(max_attempts=1)
    drain(send_garbage)
    sums = sum_ledger()
    assert (sums["unpriced"], sums["paid_usd"], sums["list_usd"]) == (6, 0, 0)
    assert LedgerEntry.objects.aggregate(kept=Sum("kept_usd"))["kept"] == 6 * Decimal("0.01")
    assert find_differences() == []


def test_a_late_answer_moves_its_cost_into_the_ledger(run):
    trial = factories.plan_trials(factories.make_runs(run.experiment, wave=1)[0])[0]
    lost_attempt = factories.make_attempt(trial, outcome="lost", cost_usd=None, finished_at=factories.NOON)
    assert sum_ledger(run=trial.run)["unpriced"] == 1
    later = factories.NOON.replace(hour=15)
    Attempt.objects.filter(pk=lost_attempt.pk).update(outcome="late", cost_usd=PAID, finished_at=later)
    sums = sum_ledger(run=trial.run)
    assert (sums["attempts"], sums["unpriced"], sums["paid_usd"]) == (1, 0, PAID)
    assert sum_ledger(run=trial.run, at=later)["attempts"] == 1


def test_reconcile_finds_a_changed_entry(run, capsys):
    drain(build_provider(cost_usd=PAID))
    for column in ("paid_usd", "attempts", "cache_saved_usd", "kept_usd", "reasoning_tokens"):
        change_ledger(f"{column} = {column} + 1")
        differences = find_differences()
        assert {difference.counter for difference in differences} == {column}
        assert all(difference.row.startswith(f"ledger of run {run.pk} from ") for difference in differences)
        with pytest.raises(SystemExit) as ending:
            call_command("reconcile")
        assert ending.value.code == 1, column
        assert column in capsys.readouterr().out
        change_ledger(f"{column} = {column} - 1")
        assert find_differences() == []


def change_ledger(assignment):
    with connection.cursor() as cursor, disable_triggers():
        cursor.execute(f"UPDATE runs_app_ledgerentry SET {assignment}")


def test_reconcile_finds_attempts_that_were_deleted_without_the_ledger(run):
    drain(build_provider(cost_usd=PAID))
    with allow_deletions():
        Attempt.objects.filter(pk=Attempt.objects.first().pk).delete()
    assert {str(difference.row).split()[0] for difference in find_differences()} >= {"ledger", "run"}


def test_deleting_an_experiment_deletes_its_ledger(run, experiment):
    from runs_app import deletion

    drain(build_provider(cost_usd=PAID))
    deletion.delete(experiment, by="owner", reason="no longer needed")
    assert not LedgerEntry.objects.exists()
    assert find_differences() == []
