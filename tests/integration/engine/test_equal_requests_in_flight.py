"""A trial waits for the answer to an equal request in flight, across all runs, drains and machines."""

import asyncio
import uuid
from decimal import Decimal

import pytest
from django.utils import timezone

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.engine.response_cache import take_cache_keys
from runs_app.engine.worker import Drain, DrainLimits
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, CachedAnswer, Experiment, Run, Trial
from runs_app.models.cache import measure_cache
from tests.factories.engine import build_reply
from tests.integration.engine.test_the_response_cache import make_cached_experiment

TRIALS = 6  # Of each experiment.


@pytest.fixture
def equal_experiments(transactional_db):
    """Two experiments with equal requests, launched together."""
    experiments = [make_cached_experiment(slug) for slug in ("first", "second")]
    for experiment in experiments:
        run_control.launch(experiment, by="test")
    return experiments


class Provider:
    """A provider that answers after all calls of one experiment arrived. It fails first with each of `failures`."""

    def __init__(self, failures=()):
        self.failures, self.n_calls, self.is_all = list(failures), 0, asyncio.Event()

    async def __call__(self, request):
        self.n_calls += 1
        failure = self.failures.pop(0) if self.failures else None
        if self.n_calls == TRIALS:
            self.is_all.set()
        async with asyncio.timeout(60):
            await self.is_all.wait()
        await asyncio.sleep(0.2)  # Meanwhile, trials with equal requests check the cache and wait.
        if failure:
            raise failure
        return build_reply("four", cost_usd=Decimal("0.01"))


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr("runs_app.engine.outcomes.compute_backoff_s", lambda *_, **__: 0.1)


def run_drains(n, provider):
    """Run `n` drains concurrently, each with its own worker registration."""
    registrations = [WorkerRegistration() for _ in range(n)]

    async def go():
        drains = [Drain(provider, registration, DrainLimits(until_idle=True)) for registration in registrations]
        await asyncio.gather(*(registration.run() for registration in drains))

    asyncio.run(go())


@pytest.mark.slow
@pytest.mark.parametrize("drains", [1, 2])
def test_two_runs_with_equal_requests_pay_for_one_call(equal_experiments, drains):
    provider = Provider()
    run_drains(drains, provider)
    assert provider.n_calls == TRIALS
    assert set(Run.objects.values_list("status", "n_done", "n_attempts")) == {("done", TRIALS, TRIALS)}
    assert sorted(Attempt.objects.values_list("outcome", flat=True)) == ["cached"] * TRIALS + ["ok"] * TRIALS
    assert sum(Experiment.objects.values_list("spent_usd", flat=True)) == Decimal("0.06")
    assert set(Trial.objects.values_list("attempts", "error_class")) == {(1, "")}
    assert find_differences() == []


def test_a_waiting_trial_makes_the_call_if_the_other_call_fails_permanently(equal_experiments):
    provider = Provider([CallFailure(ErrorClass.BAD_REQUEST, "no", http_status=400)] * TRIALS)
    Experiment.objects.update(stop_failure_rate=1)
    run_drains(1, provider)
    assert provider.n_calls == 2 * TRIALS
    assert sorted(Trial.objects.values_list("status", flat=True)) == ["done"] * TRIALS + ["failed"] * TRIALS
    assert set(CachedAnswer.objects.values_list("trial__status", flat=True)) == {"done"}
    assert find_differences() == []


@pytest.mark.slow
def test_a_waiting_trial_makes_no_call_while_the_other_trial_retries(equal_experiments):
    provider = Provider([CallFailure(ErrorClass.SERVER_ERROR, "unwell", http_status=500)] * 2)
    run_drains(1, provider)
    assert provider.n_calls == TRIALS + 2
    assert set(Run.objects.values_list("status", "n_done")) == {("done", TRIALS)}
    assert find_differences() == []


def test_a_trial_waits_only_for_an_equal_call_in_flight(equal_experiments):
    trials = Trial.objects.order_by("pk").iterator()  # Another pair for each case.
    for status, is_leased, waits in (
        ("running", True, True),  # A call in flight.
        ("running", False, False),  # In a batch, which can take a day.
        ("pending", False, False),  # Waiting for a retry, or its worker died: the first claim makes the call.
        ("failed", False, False),
        ("cancelled", False, False),
        ("done", False, True),  # Answered between two checks: the next check finds it.
    ):
        case, holder, other = (status, is_leased), next(trials), next(trials)
        token, lease = (uuid.uuid4() if status == "running" else None), (timezone.now() if is_leased else None)
        Trial.objects.filter(pk=holder.pk).update(status=status, token=token, lease_until=lease)
        CachedAnswer.objects.create(key=str(case), trial=holder)
        assert measure_cache().answers == (status == "done"), "a key that is taken is no answer yet"
        assert take_cache_keys({other.pk: str(case)}) == ({other.pk} if waits else set()), case
        takes_over = status in ("pending", "failed", "cancelled")
        assert CachedAnswer.objects.get(key=str(case)).trial == (other if takes_over else holder), case


def test_the_second_of_two_equal_requests_in_one_claim_waits_for_the_first(equal_experiments):
    first, second, third = Trial.objects.order_by("pk").values_list("pk", flat=True)[:3]
    Trial.objects.filter(pk=first).update(status="running", token=uuid.uuid4(), lease_until=timezone.now())
    assert take_cache_keys({first: "k", second: "k", third: "l"}) == {second}
    assert take_cache_keys({first: "k"}) == set()
