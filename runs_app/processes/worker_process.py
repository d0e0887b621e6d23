"""A worker in this process: the gateway and one drain of calls and batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from runs_app.batches.batch_worker import BatchWorker, has_due_batches
from runs_app.engine.worker import Drain, DrainLimits, has_calls_left
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm import gateway
from runs_app.llm.local_servers import evict

BATCH_SOON_S = 5.0


def run_worker(limits: DrainLimits, watch: Callable[[Drain], Awaitable[None]]) -> int:
    """Run one drain to its end, and return the number of recorded results.

    `watch` runs beside the drain until it ends, and stops it. Raise SchemaMismatch if this code does not match the
    database schema.
    """
    registration = WorkerRegistration()  # First, because loading the gateway may take most of a minute.
    gateway.warm_up()

    async def run() -> int:
        drain = Drain(gateway.call, registration, limits, evict=evict, make_batch_worker=BatchWorker)
        watcher = asyncio.ensure_future(watch(drain))
        try:
            return await drain.run()
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
            await gateway.close_session()

    return asyncio.run(run())


def is_drain_needed() -> bool:
    """Return True if calls remain or a batch is due soon. A batch needs no drain while its provider processes it."""
    return has_calls_left() or has_due_batches(BATCH_SOON_S)
