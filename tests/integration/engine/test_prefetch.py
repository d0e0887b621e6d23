"""Prefetch: claims for quick calls are made early; slow calls are claimed when slots become free."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.grading.consistency_check import find_differences
from runs_app.engine.admission import Claim
from runs_app.engine.counters import CounterKeys
from runs_app.engine.jobs import LOOKAHEAD_S, STALE_S, PrefetchQueue
from runs_app.engine.worker import Drain, DrainLimits
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, Endpoint, Trial
from tests import factories
from tests.factories.engine import build_reply

AT = 7


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def make_jobs(n, endpoint_id=AT):
    return [
        SimpleNamespace(claim=Claim(key, CounterKeys(1, 1, endpoint_id), None, 1, None, 0, 1, 0, 0)) for key in range(n)
    ]


def simulate_answers(per_second, for_s=5.0, turn_s=0.05):
    """Return a queue, clock and target sizes after `for_s` seconds of answers at this rate."""
    clock = Clock()
    ahead = PrefetchQueue(clock)
    ahead.target_sizes()
    n_answered = 0.0
    while clock.now < 100 + for_s:
        clock.now += turn_s
        while n_answered < per_second * (clock.now - 100):
            ahead.note_answer(AT)
            n_answered += 1
        targets = ahead.target_sizes()
    return ahead, clock, targets


def test_the_queue_holds_the_jobs_that_start_within_the_lookahead():
    assert simulate_answers(640)[2][AT] == pytest.approx(640 * LOOKAHEAD_S, rel=0.05)


def test_nothing_is_prefetched_if_calls_take_seconds():
    assert simulate_answers(64 / 30)[2] == {}


def test_the_rate_decays_without_answers():
    ahead, clock, _ = simulate_answers(640)
    clock.now += 3
    assert ahead.target_sizes() == {}


def test_stale_jobs_are_released():
    ahead, clock, _ = simulate_answers(640)
    ahead.add(make_jobs(3), {AT: 0})
    clock.now += STALE_S / 2
    ahead.add(make_jobs(2), {AT: 0})
    clock.now += STALE_S / 2
    assert len(ahead.take_stale()) == 3
    assert len(ahead) == 2


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)), max_size=4))
def test_prefetched_calls_never_exceed_the_limit_of_their_endpoint(endpoints):
    ahead = PrefetchQueue()
    waiting = [job for key, (n, _, _) in enumerate(endpoints) for job in make_jobs(n, key)]
    levels = {key: level for key, (_, level, _) in enumerate(endpoints)}
    n_in_flight = {key: n_in_flight for key, (_, _, n_in_flight) in enumerate(endpoints)}
    ahead.add(waiting, levels)
    started = Counter(job.claim.counter_keys.endpoint_id for job in ahead.take_startable(n_in_flight))
    for key, (n, level, n_active) in enumerate(endpoints):
        assert started[key] == max(0, min(n, level - n_active))
    assert len(ahead) == len(waiting) - started.total()


@pytest.fixture
def long_run(transactional_db):
    """200 trials at an endpoint that admits more than the drain keeps in flight."""
    experiment = factories.make_experiment("long", dataset=factories.make_dataset("long-items", 200), max_usd=None)
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    Endpoint.objects.update(max_concurrency=64, adaptive=False)
    type(run).objects.update(max_concurrency=64)
    return run


class Provider:
    """A provider with a short latency that records its peak number of calls in flight."""

    def __init__(self, drain=None):
        self.now = self.peak = self.n_calls = self.n_ended = self.most_held = 0
        self.drain = drain

    def read_clock(self):
        """Return the time of a machine that ends 200 calls per second, however fast this machine is."""
        return self.n_ended / 200

    async def __call__(self, request):
        self.n_calls += 1
        self.now += 1
        self.peak = max(self.peak, self.now)
        self.most_held = max(self.most_held, self.now + len(self.drain._prefetched))
        await asyncio.sleep(0.01)
        self.now -= 1
        self.n_ended += 1
        return await self.answer()

    async def answer(self):
        return build_reply()


def run_drain(provider, **limits):
    registration = WorkerRegistration()

    async def go():
        provider.drain = Drain(provider, registration, DrainLimits(**{"until_idle": True, "concurrency": 8, **limits}))
        provider.drain._prefetched = PrefetchQueue(provider.read_clock)
        return await provider.drain.run()

    return asyncio.run(go())


def test_a_drain_holds_more_claims_than_calls_in_flight_and_respects_its_concurrency(long_run):
    provider = Provider()
    assert run_drain(provider) == 200
    assert provider.peak == 8
    assert provider.most_held > 8
    assert set(Trial.objects.values_list("status", "attempts")) == {("done", 1)}
    assert find_differences() == []


def test_a_failed_call_starts_no_successor(long_run):
    class Refusing(Provider):
        async def answer(self):
            raise CallFailure(ErrorClass.UNAUTHORIZED, "no such key", http_status=401)

    provider = Refusing()
    run_drain(provider)
    long_run.refresh_from_db()
    assert long_run.status == "stopped"
    assert provider.n_calls <= 20 + 8  # Calls in flight when the run stopped.
    assert find_differences() == []


def test_prefetched_jobs_of_an_overloaded_endpoint_are_released(long_run):
    class Overloaded(Provider):
        n_calls_before = None

        async def answer(self):
            if self.n_calls_before is None and self.n_calls > 60 and len(self.drain._prefetched):
                self.n_calls_before = self.n_calls
                asyncio.get_running_loop().call_later(0.5, self.drain.stop)  # Enough for a forbidden call.
            if self.n_calls_before is None:
                return build_reply()
            raise CallFailure(ErrorClass.RATE_LIMITED, "slow down", http_status=429, retry_after_s=30)

    provider = Overloaded()
    run_drain(provider, until_idle=False, seconds=60)
    assert provider.n_calls_before is not None
    assert provider.n_calls <= provider.n_calls_before + 8  # Calls in flight at the first 429.
    assert find_differences() == []


def test_prefetched_jobs_of_a_stopped_worker_are_released(long_run):
    class Stopping(Provider):
        async def answer(self):
            if self.n_calls > 60 and len(self.drain._prefetched):
                self.drain.stop()
            return build_reply()

    provider = Stopping()
    run_drain(provider)
    assert Trial.objects.filter(status="done").count() == provider.n_calls
    assert set(Trial.objects.exclude(status="done").values_list("status", "attempts")) == {("pending", 0)}
    assert Attempt.objects.count() == provider.n_calls
    assert find_differences() == []
