"""Deletion of one run: its rows are deleted, its cost stays spent, and counters still match the rows."""

from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command

from evalsite.lib.history import TransitionError
from grading_app.grading.consistency_check import find_differences
from runs_app import deletion, run_control
from runs_app.engine.recorder import record_results
from runs_app.models import Attempt, DeletedRun, Experiment, LedgerEntry, Run, Trial
from tests import factories
from tests.factories.call_outcomes import CEILING, build_outcome_result
from tests.factories.engine import admit, build_provider, drain, expire_leases, register_worker
from tests.factories.tampering import disable_triggers

PAID = Decimal("0.01")


@pytest.fixture
def second_run(run):
    """A second run of the same experiment, answered as well."""
    experiment = run.experiment
    prompt, sampler = experiment.prompts.get(), experiment.samplers.get()
    condition = factories.make_condition(experiment, factories.make_model("large"), prompt, sampler)
    second_run = Run.objects.create(experiment=experiment, condition=condition, wave=run.wave, status="running")
    factories.plan_trials(second_run)
    return second_run


def test_deleting_a_run_deletes_its_rows_and_keeps_its_cost(run, second_run):
    drain(build_provider(cost_usd=PAID))
    before = Experiment.objects.get()
    deletion.delete_run(run, by="owner", reason="a wrong model")
    assert not Run.objects.filter(pk=run.pk).exists()
    assert set(Trial.objects.values_list("run", flat=True)) == {second_run.pk}
    assert set(Attempt.objects.values_list("run", flat=True)) == {second_run.pk}
    assert set(LedgerEntry.objects.values_list("run", flat=True)) == {second_run.pk}
    assert Experiment.objects.get().spent_usd == before.spent_usd == 12 * PAID
    deleted_run = DeletedRun.objects.get()
    assert (deleted_run.number, deleted_run.trials, deleted_run.attempts, deleted_run.spent_usd) == (
        run.pk,
        6,
        6,
        6 * PAID,
    )
    change = before.history.get(aspect="run")
    assert (change.actor, change.reason) == ("owner", "a wrong model")
    assert change.to_value == "deleted with 6 trials; 0.06000000 USD still count towards the budget"
    assert find_differences() == []


def test_deleting_a_run_keeps_reservations_for_calls_of_unknown_cost(run):
    Run.objects.update(reserve_usd=CEILING)
    claims = admit(register_worker(), 6)
    assert len(claims) == 6
    expire_leases()
    from runs_app.engine.leases import sweep_expired

    assert sweep_expired() == 6
    run_control.cancel(Run.objects.all(), by="test", reason="over")
    assert Experiment.objects.get().reserved_usd == 6 * CEILING
    deletion.delete_run(Run.objects.get(), by="test", reason="over")
    assert DeletedRun.objects.get().kept_usd == 6 * CEILING
    assert find_differences() == []


def test_reconcile_finds_money_of_a_deleted_run_that_was_changed(run):
    drain(build_provider(cost_usd=PAID))
    deletion.delete_run(run, by="owner", reason="a try")
    with disable_triggers():
        DeletedRun.objects.update(spent_usd=0)
    (difference,) = find_differences()
    assert difference.counter == "spent_usd"


def test_an_active_run_or_a_run_with_calls_in_flight_cannot_be_deleted(run):
    with pytest.raises(TransitionError, match="pause or cancel it"):
        deletion.delete_run(run, by="test")
    holder = register_worker()
    claims = admit(holder, 2)
    run_control.pause(Run.objects.all(), by="test")
    with pytest.raises(TransitionError, match="in flight"):
        deletion.delete_run(run, by="test")
    record_results([build_outcome_result(claim, ("answer", None)) for claim in claims], holder)
    deletion.delete_run(run, by="test", reason="over")
    assert not Trial.objects.exists()
    assert find_differences() == []


def test_a_run_cannot_be_deleted_before_the_judge_runs_that_grade_it(run, second_run):
    drain(build_provider(cost_usd=PAID))
    item = run.experiment.dataset.items.first()
    Trial.objects.create(run=second_run, item=item, sample_idx=7, subject=run.trials.first(), status="cancelled")
    with pytest.raises(TransitionError, match=f"run {second_run.pk} has verdicts on answers"):
        deletion.delete_run(run, by="test")
    assert run.trials.count() == 6


def test_the_next_launch_plans_a_deleted_run_again(run):
    drain(build_provider(cost_usd=PAID))
    deletion.delete_run(run, by="test", reason="again")
    report = run_control.launch(Experiment.objects.get(), by="test")
    assert (report.is_new, report.trials_added) == (True, 6)
    assert find_differences() == []


def test_the_command_deletes_only_runs_of_the_named_experiment(run, capsys):
    drain(build_provider(cost_usd=PAID))
    name = run.experiment.slug
    call_command("experiment", "delete-run", name, run.pk, reason="a try", yes=True)
    assert f"run {run.pk} of {name} is deleted" in capsys.readouterr().out
    with pytest.raises(CommandError, match="has no run") as ending:
        call_command("experiment", "delete-run", name, run.pk, reason="a try", yes=True)
    assert ending.value.returncode == 2


def test_the_page_lists_the_rows_before_a_deletion(run):
    drain(build_provider(cost_usd=PAID))
    run.refresh_from_db()
    description = run.describe_deletion()
    assert "This permanently deletes its 6 trials with 6 attempts, answers and grades." in description
    assert "Its cost of $0.06 stays spent" in description
