"""An endpoint that does not answer is tested now and then; its trials wait and keep their attempts."""

import asyncio

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.engine import rate_limiter
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, Endpoint, Run
from runs_app.monitoring.blockers import find_blockers
from tests import factories
from tests.factories.database_thread import DATABASE_THREAD
from tests.factories.engine import build_reply, drain

ODD = "Question 7?"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(rate_limiter, "FIRST_WAIT_S", 0.005)
    monkeypatch.setattr(rate_limiter, "LONGEST_WAIT_S", 0.01)


def make_run(**fields):
    experiment = factories.make_experiment(
        "night",
        dataset=factories.make_dataset("many", [{"key": f"q{n}", "input": f"Question {n}?"} for n in range(60)]),
        **{"max_usd": None, "backoff_s": 0.1, "max_backoff_s": 0.1, **fields},
    )
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    return run


class Provider:
    """A provider that answers `working` calls, then fails the next `failing` calls, then answers again.

    It never answers the question ODD.
    """

    def __init__(self, failure, working=20, failing=100, odd=None):
        self.failure, self.working, self.failing, self.odd, self.calls = failure, working, failing, odd, 0

    async def call(self, request):
        await asyncio.sleep(0.002)
        if self.odd and ODD in request.messages[-1]["content"]:
            raise CallFailure(self.odd, "this question takes too long", http_status=None)
        self.calls += 1
        if self.working < self.calls <= self.working + self.failing:
            raise CallFailure(self.failure, "down", was_sent=self.failure != ErrorClass.UNREACHABLE)
        return build_reply()


@pytest.mark.parametrize("failure", [ErrorClass.UNREACHABLE, ErrorClass.CONNECTION, ErrorClass.SERVER_ERROR])
def test_no_trial_fails_when_its_endpoint_is_down_for_a_while(transactional_db, failure):
    run = make_run()
    provider = Provider(failure)
    drain(provider.call, seconds=60)
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed) == ("done", 60, 0)
    assert provider.calls == 160
    assert run.trials.filter(attempts__gt=2).count() == 0
    assert Endpoint.objects.get().throttle["down_since"] is None
    assert find_differences() == []


def test_an_outage_that_begins_in_one_instant_uses_no_attempt_at_all(transactional_db):
    run = make_run(max_attempts=1)
    drain(Provider(ErrorClass.UNREACHABLE, working=1, failing=50).call, seconds=60)
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed) == ("done", 60, 0)
    assert set(Attempt.objects.exclude(outcome="ok").values_list("outcome", "error_class")) == {
        ("endpoint", "unreachable")
    }


@pytest.mark.parametrize("odd", [ErrorClass.TIMEOUT, ErrorClass.SERVER_ERROR])
@pytest.mark.parametrize("failing", [0, 60])
def test_one_odd_trial_uses_its_own_attempts_and_fails_while_the_others_work(transactional_db, odd, failing):
    run = make_run()
    drain(Provider(ErrorClass.CONNECTION, failing=failing, odd=odd).call, seconds=60)
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed) == ("done", 59, 1)
    trial = run.trials.get(status="failed")
    assert (trial.item.input, trial.error_class, trial.attempts) == (ODD, odd, 3)
    assert trial.attempt_rows.filter(outcome="transient").count() == 3


def test_a_run_stops_after_the_longest_outage_and_can_be_resumed(transactional_db, settings):
    settings.OUTAGE_LIMIT_S = 0.3
    run = make_run()
    drain(Provider(ErrorClass.UNREACHABLE, failing=10**6).call, seconds=60)
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_pending, run.n_failed) == ("stopped", 20, 40, 0)
    assert "did not answer" in run.stop_reason
    assert "down" in run.stop_reason
    assert run.history.first().reason == run.stop_reason
    assert find_differences() == []
    run_control.resume(Run.objects.all(), by="test")
    drain(Provider(ErrorClass.UNREACHABLE, failing=0).call, seconds=60)
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed) == ("done", 60, 0)


def test_a_few_calls_test_the_endpoint_and_the_page_says_so(transactional_db):
    run = make_run()
    sentences, in_flight = [], []

    async def call(request):
        state = await asyncio.get_running_loop().run_in_executor(DATABASE_THREAD, read_state)
        if state[0]:
            sentences.append(state[0])
            in_flight.append(state[1])
        return await provider.call(request)

    def read_state():
        fresh = Run.objects.with_design().get(pk=run.pk)
        return [blocker.sentence for blocker in find_blockers([fresh])], fresh.n_running

    provider = Provider(ErrorClass.CONNECTION, working=0, failing=60)
    drain(call, seconds=60)
    run.refresh_from_db()
    assert run.n_done == 60
    (sentence,) = sentences[-1]
    assert sentence.startswith("Endpoint ")
    assert "has not answered for" in sentence
    assert "down. Trials wait and keep their attempts." in sentence
    assert max(in_flight[20:40]) <= 2


def test_tests_of_the_endpoint_take_turns_with_different_trials(transactional_db):
    """The request of one trial may itself be at fault, so it alone must not decide."""
    run = make_run()
    tested = []

    async def call(request):
        tested.append(request.messages[-1]["content"])
        raise CallFailure(ErrorClass.SERVER_ERROR, "down", http_status=500)

    drain(call, stop_at=52)
    run.refresh_from_db()
    assert run.n_failed == 0
    assert len(set(tested[32:])) >= 4
