"""Launch, pause, resume, cancel and retry: they apply to all workers and record an author and a reason."""

import asyncio
from decimal import Decimal

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.engine.recorder import record_results
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Condition, Experiment, Run
from tests import factories
from tests.factories.call_outcomes import build_outcome_result
from tests.factories.engine import admit, build_provider, build_reply, drain


def test_a_launch_plans_the_trials_writes_the_manifest_and_starts_the_runs(transactional_db):
    experiment = factories.make_experiment("fresh", samples=2, max_usd=None)
    report = run_control.launch(experiment, by="test")
    assert report.trials_added == 6
    assert experiment.status == "active"
    manifest = experiment.manifests.get().content
    assert manifest["dataset"]["hash"] == experiment.dataset.content_hash
    assert [condition["id"] for condition in manifest["conditions"]] == [experiment.conditions.get().condition_id]
    assert drain(build_provider()) == 6


@pytest.mark.slow
def test_a_second_launch_adds_only_missing_trials(transactional_db):
    experiment = factories.make_experiment("grows", samples=1, max_usd=None)
    run_control.launch(experiment, by="test")
    drain(build_provider())
    Experiment.objects.update(samples=3)
    experiment.refresh_from_db()
    assert run_control.launch(experiment, by="test").trials_added == 6
    assert drain(build_provider()) == 6
    assert Run.objects.get().n_done == 9
    assert find_differences() == []


def test_trials_of_a_paused_run_are_claimed_only_after_it_resumes(run):
    run_control.pause(Run.objects.all(), by="an operator", reason="the provider is down")
    assert admit(WorkerRegistration().worker_id, 10) == []
    change = run.history.first()
    assert (change.actor, change.to_value, change.reason) == ("an operator", "paused", "the provider is down")
    run_control.resume(Run.objects.all(), by="an operator")
    assert drain(build_provider()) == 6


def test_cancelling_a_run_cancels_pending_trials_and_records_calls_in_flight(run):
    async def call(request):
        await asyncio.to_thread(_cancel_once)
        return build_reply()

    drain(call, concurrency=2)
    run.refresh_from_db()
    assert run.status == "cancelled"
    assert run.n_done == 2
    assert run.n_cancelled == 4
    assert find_differences() == []


def _cancel_once():
    from django.db import connection

    run_control.cancel(Run.objects.all(), by="test", reason="wrong prompt")
    connection.close()


def test_failed_trials_can_be_retried_by_error_class(run):
    async def refuse_call(request):
        kind = "content_refused" if "0 plus" in request.messages[-1]["content"] else "not_found"
        raise CallFailure(ErrorClass(kind), "no", http_status=400)

    drain(refuse_call)
    assert run_control.retry_failed(Run.objects.all(), error_class="not_found", by="test") == 4
    drain(build_provider())
    assert Run.objects.get().n_done == 4
    assert set(run.trials.filter(status="failed").values_list("error_class", flat=True)) == {"content_refused"}
    assert find_differences() == []


def test_conditions_in_sequence_run_one_after_the_other(transactional_db):
    models = [factories.make_model("small"), factories.make_model("large")]
    experiment = factories.make_experiment("sequence", models=models, sequential=True, max_usd=None)
    run_control.launch(experiment, by="test")
    assert sorted(Run.objects.values_list("status", flat=True)) == ["queued", "running"]
    requests = []

    async def call(request):
        requests.append(request.model)
        return build_reply()

    drain(call)
    assert len(set(requests[:3])) == 1
    assert len(set(requests[3:])) == 1
    assert set(Run.objects.values_list("status", flat=True)) == {"done"}


def test_a_budget_is_never_exceeded_and_the_run_states_the_missing_amount(run):
    Run.objects.update(reserve_usd=Decimal("0.10"))
    Experiment.objects.update(max_usd=Decimal("0.35"))
    drain(build_provider(cost_usd=Decimal("0.10")))
    experiment = Experiment.objects.get()
    assert experiment.spent_usd == Decimal("0.30")
    assert experiment.reserved_usd == 0
    run.refresh_from_db()
    assert run.status == "paused"
    assert "Pending trials of this run: 3," in run.stop_reason
    assert find_differences() == []


def test_a_run_without_budget_states_the_cost_of_all_pending_calls(transactional_db):
    """Three trials of each of two conditions and two of a judge: 3 x $0.10 + 3 x $0.20 + 2 x $0.50; $0.05 is left."""
    models = [factories.make_model("small"), factories.make_model("large")]
    experiment = factories.make_experiment("two", models=models, max_usd=Decimal("0.05"))
    small, large = factories.make_runs(experiment)
    for run, each in ((small, "0.10"), (large, "0.20")):
        factories.plan_trials(run)
        Run.objects.filter(pk=run.pk).update(reserve_usd=each)
    judge = Condition.objects.create(
        stage="judge", experiment=experiment, model=models[0], sampler=experiment.samplers.get(), content={}
    )
    Run.objects.create(experiment=experiment, condition=judge, wave=small.wave, n_pending=2, reserve_usd="0.50")
    assert admit(WorkerRegistration().worker_id, 10) == []
    small.refresh_from_db()
    assert small.status == "paused"
    assert small.stop_reason == (
        "The budget of $0.0500 is reached: $0.0000 is spent and $0.0500 is left."
        " Pending trials of this run: 3, at most $0.3000."
        " Pending calls of the experiment, with judges: 8, at most $1.9000, which is $1.8500 more than is left."
    )


@pytest.mark.parametrize("n", [0, 100_001])
def test_a_concurrency_limit_out_of_range_is_refused(run, n):
    with pytest.raises(ValueError, match="between 1 and 100,000"):
        run.change_concurrency(n, by="test")


def test_failed_trials_of_a_cancelled_run_are_not_retried(run):
    worker, refusal = WorkerRegistration().worker_id, ("failure", ErrorClass.CONTENT_REFUSED)
    record_results([build_outcome_result(claim, refusal) for claim in admit(worker, 2)], worker)
    run_control.cancel(Run.objects.all(), by="test", reason="wrong prompt")
    assert run_control.retry_failed(Run.objects.all(), by="test") == 0
    run.refresh_from_db()
    assert (run.status, run.n_pending) == ("cancelled", 0)
    assert run.n_failed == 2


def test_a_paused_run_is_done_when_its_last_trial_is_answered(run):
    async def call(request):
        await asyncio.to_thread(_pause)
        return build_reply()

    drain(call)
    run.refresh_from_db()
    assert (run.status, run.n_done) == ("done", 6)


def _pause():
    from django.db import connection

    run_control.pause(Run.objects.all(), by="test", reason="to look at it")
    connection.close()


@pytest.fixture
def sequence(transactional_db):
    models = [factories.make_model(name) for name in ("small", "middle", "large")]
    experiment = factories.make_experiment("sequence", models=models, sequential=True, max_usd=None)
    run_control.launch(experiment, by="test")
    return experiment


def list_statuses():
    return list(Run.objects.order_by("pk").values_list("status", flat=True))


@pytest.mark.slow
def test_a_paused_sequence_resumes_as_a_sequence(sequence):
    run_control.pause(Run.objects.all(), by="test")
    assert list_statuses() == ["paused", "paused", "paused"]
    assert len(run_control.resume(Run.objects.all(), by="test")) == 3
    assert list_statuses() == ["running", "queued", "queued"]
    assert drain(build_provider()) == 9
    assert list_statuses() == ["done", "done", "done"]


def test_a_resumed_run_of_a_sequence_waits_for_its_turn(sequence):
    last_run = Run.objects.filter(pk=Run.objects.latest("pk").pk)
    run_control.pause(last_run, by="test")
    run_control.resume(last_run, by="test")
    assert list_statuses() == ["running", "queued", "queued"]


def test_retried_trials_of_a_sequence_wait_for_their_turn(sequence):
    worker = WorkerRegistration().worker_id
    refusal = ("failure", ErrorClass.CONTENT_REFUSED)
    record_results([build_outcome_result(claim, refusal) for claim in admit(worker, 10)], worker)
    assert list_statuses() == ["done", "running", "queued"]
    assert run_control.retry_failed(Run.objects.all(), by="test") == 3
    assert list_statuses() == ["queued", "running", "queued"]


def test_cancelling_a_sequence_starts_no_run(sequence):
    run_control.cancel(Run.objects.all(), by="test", reason="wrong prompt")
    assert list_statuses() == ["cancelled", "cancelled", "cancelled"]
    assert [change.to_value for change in Run.objects.latest("pk").history] == ["cancelled", "queued"]
