"""Workers of the engine in this process: a real drain over real rows, and a provider that is a function."""

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal

from django.db import connection, connections
from django.utils import timezone

from runs_app.batches.batch_worker import BatchWorker
from runs_app.engine import outcomes as outcomes_module
from runs_app.engine.admission import WorkerCapacity
from runs_app.engine.recorder import Result
from runs_app.engine.worker import Drain, DrainLimits
from runs_app.engine.worker_cycle import run_cycle
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm.calls import CallReply
from runs_app.llm.http_transport import close_session
from runs_app.models import Run, Trial
from tests import factories
from tests.factories.database_thread import DATABASE_THREAD, reset_session

IN_FLIGHT = 16


def build_reply(text="ready", **fields):
    """Return a reply as the gateway returns it."""
    defaults = {
        "text": text,
        "raw_text": text,
        "reasoning": "",
        "finish_reason": "stop",
        "refused": False,
        "response_id": "r-1",
        "served_model": "small-2026",
        "served_provider": "lab",
        "input_tokens": 10,
        "output_tokens": 5,
        "reasoning_tokens": None,
        "cache_read_tokens": None,
        "cache_write_tokens": None,
        "cost_usd": None,
        "cost_source": "unknown",
        "latency_ms": 3,
        "trace_id": "t",
    }
    return CallReply(**{**defaults, **fields})


class EagerDrain(Drain):
    """A drain that polls for work without waiting, and leaves its connection to the next."""

    def __post_init__(self):
        super().__post_init__()
        self._thread = DATABASE_THREAD

    async def _sql(self, work, *arguments):
        return await super()._sql(reset_session if work == connections.close_all else work, *arguments)

    async def _wait(self, seconds):
        await super()._wait(min(seconds, 0.02))


def drain(call, *, stop_at=None, **limits):
    """Drain with this provider until no work is left. Return the number of written results.

    stop_at: stop when this many calls have begun, as a signal does. Calls in flight end, and their results are written.
    """
    registration, begun = WorkerRegistration(), itertools.count(1)

    async def run_drain():
        async def count_call(request):
            if next(begun) == stop_at:
                worker.stop()
            return await call(request)

        drain_limits = DrainLimits(**{"until_idle": True, **limits})
        worker = EagerDrain(count_call, registration, drain_limits, make_batch_worker=BatchWorker)
        try:
            return await worker.run()
        finally:
            await close_session()  # Batches use HTTP even if `call` is a function.

    return asyncio.run(run_drain())


def build_provider(text="ready", **fields):
    """Return a provider that gives this reply to every request."""

    async def call(request):
        return build_reply(text, **fields)

    return call


def register_worker():
    return WorkerRegistration().worker_id


def admit(worker_id, limit):
    """Claim at most this many trials, as a worker's cycle does."""
    return run_cycle([], worker_id, WorkerCapacity(limit)).claims


def expire_leases():
    Trial.objects.filter(status="running").update(lease_until=timezone.now() - timedelta(seconds=1))


def build_text_result(claim, text="late"):
    """Return the result of a claim whose call returned this text."""
    answer = build_reply(text, cost_usd=Decimal("0.5"))
    conclusion = outcomes_module.build_answer_outcome(answer, None)
    return Result(claim, "done", conclusion.trial, [outcomes_module.build_attempt_from_reply(answer)])


def make_launched_run(base_url, items=30, samples=10, **fields):
    """Create a run of items x samples distinct trials at the provider's address, with capacity for two workers."""
    endpoint = factories.make_endpoint(
        "rehearsal", base_url=base_url, max_concurrency=2 * IN_FLIGHT, is_free=True, adaptive=False
    )
    experiment = factories.make_experiment(
        "faulty",
        dataset=factories.make_dataset("many", items),
        models=[factories.make_model("sim", endpoint=endpoint)],
        samples=samples,
        **{"max_usd": None, "cache_buster": True, **fields},
    )
    (run,) = factories.make_runs(experiment)
    Run.objects.filter(pk=run.pk).update(max_concurrency=2 * IN_FLIGHT)
    factories.plan_trials(run)
    return run


def run_at_once(*works):
    """Run the functions concurrently in threads with their own connections. Return their results."""
    barrier = threading.Barrier(len(works), timeout=60)

    def thread(work):
        try:
            connection.ensure_connection()
            barrier.wait()
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(works)) as threads:
        return [future.result(timeout=120) for future in [threads.submit(thread, work) for work in works]]
