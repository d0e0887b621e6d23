"""Restart of a stopped run after its cause was corrected: earlier failures do not stop it again."""

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.engine.recorder import record_results
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Experiment, Run
from tests import factories
from tests.factories.call_outcomes import build_outcome_result
from tests.factories.engine import admit, build_provider, drain

pytestmark = pytest.mark.django_db(transaction=True)
DEADLINE_S = 30


@pytest.fixture
def run():
    """Sixty trials, twenty at a time."""
    factories.make_endpoint(max_concurrency=20, adaptive=False)
    experiment = factories.make_experiment("long", samples=20, max_usd=None)
    run_control.launch(experiment, by="test")
    return Run.objects.get()


def refuse_with(error_class=ErrorClass.UNAUTHORIZED):
    async def call(request):
        raise CallFailure(error_class, "no such key", http_status=401)

    return call


def stop_after_twenty_calls(run):
    drain(refuse_with())
    run.refresh_from_db()
    assert (run.status, run.n_failed, run.n_pending) == ("stopped", 20, 40)


@pytest.mark.slow
def test_a_run_continues_to_its_end_after_the_key_is_corrected(run):
    stop_after_twenty_calls(run)
    run_control.resume(Run.objects.all(), by="an operator", reason="the key is mended")
    assert drain(build_provider(), seconds=DEADLINE_S) == 40
    assert run_control.retry_failed(Run.objects.all(), by="an operator") == 20
    assert drain(build_provider(), seconds=DEADLINE_S) == 20
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_attempts, run.n_permanent) == ("done", 60, 80, 20)
    assert find_differences() == []


def test_a_retry_restarts_a_stopped_run(run):
    stop_after_twenty_calls(run)
    run_control.retry_failed(Run.objects.all(), by="an operator")
    assert drain(build_provider(), seconds=DEADLINE_S) == 60
    assert Run.objects.get().status == "done"


def test_a_run_stops_again_if_the_cause_remains(run):
    stop_after_twenty_calls(run)
    run_control.resume(Run.objects.all(), by="an operator")
    drain(refuse_with(), seconds=DEADLINE_S)
    run.refresh_from_db()
    assert (run.status, run.n_failed, run.n_pending) == ("stopped", 40, 20)
    assert run.stop_reason.startswith("20 of 20 attempts failed permanently")


def test_earlier_failures_of_a_done_run_do_not_stop_its_retries(run):
    Experiment.objects.update(stop_after_attempts=100)
    drain(refuse_with())
    run.refresh_from_db()
    assert (run.status, run.n_failed) == ("done", 60)
    Experiment.objects.update(stop_after_attempts=20)
    run_control.retry_failed(Run.objects.all(), by="an operator")
    assert drain(build_provider(), seconds=DEADLINE_S) == 60
    assert Run.objects.get().status == "done"


def test_lowering_the_failure_limit_stops_a_run_with_a_reason(run):
    Experiment.objects.update(stop_failure_rate=1)
    worker = WorkerRegistration().worker_id
    refused = ("failure", ErrorClass.CONTENT_REFUSED)
    record_results([build_outcome_result(claim, refused) for claim in admit(worker, 20)], worker)
    record_results([build_outcome_result(claim, refused) for claim in admit(worker, 10)], worker)
    Experiment.objects.update(stop_failure_rate=0.1)
    assert admit(worker, 20) == []
    run.refresh_from_db()
    assert (run.status, run.n_pending) == ("stopped", 30)
    assert "10.0% is the limit" in run.stop_reason


REFUSED, ANSWERED = ("failure", ErrorClass.CONTENT_REFUSED), ("answer", None)


def record_outcomes(worker, outcomes):
    claims = admit(worker, len(outcomes))
    record_results(
        [build_outcome_result(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)], worker
    )
    return Run.objects.get()


def test_two_failures_of_twenty_nine_do_not_stop_a_run(run):
    worker = WorkerRegistration().worker_id
    record_outcomes(worker, [REFUSED] * 2 + [ANSWERED] * 18)
    run = record_outcomes(worker, [ANSWERED] * 9)
    assert (run.status, run.n_attempts, run.n_permanent) == ("running", 29, 2)


def test_a_run_whose_failure_rate_is_clearly_above_the_limit_stops_at_the_fifth_failure(run):
    worker = WorkerRegistration().worker_id
    assert record_outcomes(worker, [REFUSED] * 4 + [ANSWERED] * 16).status == "running"
    run = record_outcomes(worker, [REFUSED])
    assert (run.status, run.n_permanent) == ("stopped", 5)
    assert run.stop_reason.startswith("5 of 21 attempts failed permanently (23.8%). The share is above 10.")
