"""A worker in this process: the gateway and one drain, which also unloads a local model that stalls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from runs_app.batches.batch_worker import BatchWorker, has_due_batches
from runs_app.engine.worker import Drain, DrainLimits, has_calls_left
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm import gateway
from runs_app.llm.calls import CallRequest
from runs_app.llm.http_transport import Exchange
from runs_app.llm.keys import KEYLESS, read_key
from runs_app.llm.providers import ollama

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


logger = logging.getLogger("evalsite.drain")

TIMEOUT_S = 10.0


async def evict(request: CallRequest) -> None:
    """Ask Ollama to unload the model of this request. The next call loads it again.

    This is not a call to a model: it costs nothing, it is not counted or stored, and its failure changes nothing.
    """
    root = (request.base_url or ollama.PROVIDER.default_url or "").rstrip("/").removesuffix("/v1")
    key = read_key(request.key_env) or KEYLESS
    exchange = Exchange(replace(request, timeout_s=TIMEOUT_S), key)
    headers = {} if key == KEYLESS else {"Authorization": f"Bearer {key}"}
    try:
        await exchange.post(f"{root}/api/generate", json={"model": request.model, "keep_alive": 0}, headers=headers)
    except Exception as error:  # noqa: BLE001 - a server that hangs may not answer this request either
        logger.warning("%s could not be unloaded: %s", request.model, type(error).__name__)
    else:
        logger.warning("%s stalled and was unloaded", request.model)
