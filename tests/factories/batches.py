"""Batched runs, and a batch worker that can be crashed: real rows, a simulated provider over HTTP."""

import asyncio
from datetime import timedelta
from decimal import Decimal

from django.db.models import F
from django.utils import timezone

from runs_app.batches.batch_worker import BatchWorker, admit_batches
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm import gateway
from runs_app.models import Endpoint, ProviderBatch, Run
from tests import factories
from tests.factories.database_thread import DATABASE_THREAD

PRICES = {"input_price": Decimal(100), "output_price": Decimal(200), "max_output_tokens": 100}


def make_batched_run(base_url, provider="openai", items=6, *, samples=1, max_usd=None, **fields):
    """Create a batched run of `items` questions at the endpoint. Its calls are priced and use a cache buster."""
    url = base_url if provider == "openai" else base_url.removesuffix("/v1")
    endpoint = factories.make_endpoint(
        f"lab-{provider}", base_url=url, provider=provider, batch_api=provider, key_env="EVALSITE_KEY_BATCH"
    )
    name = "small" if provider == "openai" else "claude-sonnet-4-5"
    model = factories.make_model(name, endpoint=endpoint, model=name, **PRICES)
    experiment = factories.make_experiment(
        "batched",
        dataset=factories.make_dataset("questions", items),
        models=[model],
        samplers=[factories.make_sampler("short", max_tokens=50)],
        samples=samples,
        max_usd=max_usd,
        batch=True,
        **{"cache": False, "cache_buster": True, **fields},
    )
    (run,) = factories.make_runs(experiment)
    Run.objects.filter(pk=run.pk).update(is_batched=True, reserve_usd=Decimal("0.01"))
    factories.plan_trials(run)
    return run


def make_next_batched_run(experiment, number):
    """Create a batched run of the same trials in another wave."""
    (run,) = factories.make_runs(experiment, wave=number)
    type(run).objects.filter(pk=run.pk).update(is_batched=True, reserve_usd="0.01")
    factories.plan_trials(run)
    return run


def end_all_waits():
    """Make every open batch due and end every lease, but keep the order in which the batches are due.

    If all were due at the same moment, the order of their rows would decide, and one batch might never be polled.
    """
    past = timezone.now() - timedelta(seconds=1)
    ProviderBatch.objects.open().update(next_poll_at=F("next_poll_at") - timedelta(days=30))
    ProviderBatch.objects.open().exclude(lease_until=None).update(lease_until=past)


def end_submission_search(hours=0):
    """End the search for lost submissions: the time in which they may still arrive ended `hours` ago."""
    end = timezone.now() - timedelta(hours=hours, seconds=1)
    ProviderBatch.objects.exclude(search_until=None).update(search_until=end)


class Killed(BaseException):
    """Ends a worker like a kill signal: no error handler catches it."""


def kill_at(moment):
    """Return a `crash` function for `drive_batches` that kills the worker when it first reaches the point `moment`."""

    def crash(point):
        if point == moment:
            raise Killed

    return crash


def drive_batches(steps=60, crash=None, until=None):
    """Run a worker that creates and processes batches step by step. It waits up to 20 ms after a step, at first less.

    `crash(point)` is called around each piece of SQL and may raise. `until()` ends the work early.
    """
    worker = WorkerRegistration()

    async def run_worker():
        async def run_sql(statement):
            if crash:
                crash(f"before {statement.func.__name__}")
            result = await asyncio.get_running_loop().run_in_executor(DATABASE_THREAD, statement)
            if crash:
                crash(f"after {statement.func.__name__}")
            return result

        batch_worker = BatchWorker(run_sql, worker.worker_id)
        try:
            for number in range(steps):
                await asyncio.get_running_loop().run_in_executor(DATABASE_THREAD, end_all_waits)
                await batch_worker.sql(admit_batches)
                if not await batch_worker.step() or (until and await batch_worker.sql(until)):
                    return
                await asyncio.sleep(min(0.001 * number, 0.02))
            raise AssertionError("the batches did not come to an end")
        finally:
            await gateway.close_session()

    asyncio.run(run_worker())


def get_batch_endpoint():
    return Endpoint.objects.get(name__startswith="lab-")
