"""Graceful stop: calls that outlast the grace period are released without using an attempt, and recorded."""

import asyncio
from decimal import Decimal

from grading_app.grading.consistency_check import find_differences
from runs_app.engine.worker import Drain, DrainLimits
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Attempt, Experiment, Run
from tests.factories.engine import build_reply


def drain_and_stop(call, grace_s):
    """Stop the drain when three calls are in flight."""
    registration = WorkerRegistration()

    async def go():
        drain = Drain(call, registration, DrainLimits(concurrency=3, until_idle=True, grace_s=grace_s))
        started = []

        async def count_call(request):
            started.append(request)
            if len(started) == 3:
                drain.stop()
            return await call(request)

        drain.call = count_call
        return await drain.run()

    return asyncio.run(go())


def test_hung_calls_are_released_without_an_attempt_and_keep_their_reservation(run):
    Run.objects.update(reserve_usd=Decimal("0.10"))
    Experiment.objects.update(max_usd=1)

    async def hang(request):
        await asyncio.sleep(3600)

    drain_and_stop(hang, grace_s=0.2)
    assert set(run.trials.values_list("status", "attempts")) == {("pending", 0)}
    assert run.trials.filter(yields=1).count() == 3
    assert list(Attempt.objects.values_list("outcome", "kept_usd")) == [("released", Decimal("0.10"))] * 3
    assert Experiment.objects.get().reserved_usd == Decimal("0.30")
    assert find_differences() == []


def test_answers_within_the_grace_period_are_recorded(run):
    async def slow(request):
        await asyncio.sleep(0.15)
        return build_reply()

    drain_and_stop(slow, grace_s=30)
    assert run.trials.filter(status="done").count() == 3
    assert run.trials.filter(status="pending", attempts=0).count() == 3
    assert find_differences() == []
