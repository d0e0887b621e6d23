"""The queue of external calls in one process: it admits and records them in groups, one transaction for each group.

The event loop never waits for the database. Threads with a connection of their own run the transactions: one admits,
one records, one reads. A reply is in the result spool before its program receives it, and in the database some
milliseconds later. So a program never waits for the second transaction, and a killed process loses no reply.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from evalsite.lib.ops.versions import get_version
from runs_app.engine.admission import Claim
from runs_app.engine.database_recovery import OUTAGES, describe_outage, record_each
from runs_app.engine.external_calls import ExternalRequest, begin_calls
from runs_app.engine.recorder import Result
from runs_app.engine.result_spool import ResultSpool, record_orphaned_results
from runs_app.models import Worker

logger = logging.getLogger("evalsite.gateway")

MAX_GROUP = 64
RECORD_AFTER_S = 0.01  # So that a program's next call finds no lock, and replies share a transaction.
OUTAGE_WAIT_S = 1.0

T = TypeVar("T")


@dataclass(slots=True)
class Executors:
    """The executors of the three kinds of work on the database."""

    admission: Executor
    recording: Executor
    reading: Executor


@dataclass(slots=True)
class ExternalQueue:
    """The external calls of one event loop."""

    executors: Executors
    spool: ResultSpool | None = None
    worker_id: int | None = None
    record_after_s: float = RECORD_AFTER_S
    calls: set[asyncio.Task[Any]] = field(default_factory=set)
    _waiting: deque[tuple[ExternalRequest, asyncio.Future[Claim]]] = field(default_factory=deque)
    _results: list[Result] = field(default_factory=list)
    _admitting: asyncio.Task[None] | None = None
    _recording: asyncio.Task[None] | None = None
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, function: Callable[..., T], *args: Any) -> T:
        """Return the function's result from the thread that reads."""
        return await self._run(self.executors.reading, function, *args)

    async def admit(self, call: ExternalRequest) -> Claim:
        """Return the claim of a call. Raise NotAdmitted if it may not start now."""
        admitted: asyncio.Future[Claim] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, admitted))
        if self._admitting is None or self._admitting.done():
            self._admitting = asyncio.create_task(self._admit_waiting())
        return await admitted

    async def _admit_waiting(self) -> None:
        while self._waiting:
            endpoint_id = self._waiting[0][0].run.condition.model.endpoint_id
            group: list[tuple[ExternalRequest, asyncio.Future[Claim]]] = []
            others: deque[tuple[ExternalRequest, asyncio.Future[Claim]]] = deque()
            for entry in self._waiting:
                is_in = entry[0].run.condition.model.endpoint_id == endpoint_id and len(group) < MAX_GROUP
                (group if is_in else others).append(entry)
            self._waiting = others
            decided: list[Any]
            try:
                decided = await self._run(self.executors.admission, begin_calls, [call for call, _ in group])
            except Exception as error:  # noqa: BLE001 - each call of the group gets it
                decided = [error] * len(group)
            for (_, admitted), outcome in zip(group, decided, strict=True):
                if admitted.cancelled():
                    continue  # Its lease ends the claim.
                if isinstance(outcome, Claim):
                    admitted.set_result(outcome)
                else:
                    admitted.set_exception(outcome)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a call that goes on when its program leaves."""
        task = asyncio.create_task(work)
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)
        return task

    def record(self, result: Result) -> None:
        """Record a result soon. It is in the result spool when this returns."""
        if self.spool is not None:
            self.spool.add(result)
        self._results.append(result)
        if self._recording is None or self._recording.done():
            self._recording = asyncio.create_task(self._record_waiting())

    async def _record_waiting(self) -> None:
        while self._results:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self.record_after_s)
            group, self._results = self._results, []
            while True:
                try:
                    await self._run(self.executors.recording, record_each, group, self.worker_id)
                    break
                except OUTAGES as error:
                    logger.warning("%s; %s replies wait", describe_outage(error), len(group) + len(self._results))
                    await asyncio.sleep(OUTAGE_WAIT_S)
            if self.spool is not None:
                self.spool.keep_only(self._results)
        self._hurry.clear()

    async def flush(self) -> bool:
        """Record the results that wait, which frees their slots and reservations. Return whether there were any."""
        if self._recording is None or self._recording.done():
            return False
        self._hurry.set()
        await asyncio.shield(self._recording)
        return True

    async def finish(self, seconds: float | None = None) -> None:
        """Wait for the calls in flight, at most these seconds, and record all results."""
        if self.calls:
            await asyncio.wait(self.calls, timeout=seconds)
        if self._recording is not None and not self._recording.done():
            self._hurry.set()
            await asyncio.wait([self._recording], timeout=seconds)
        if self.spool is not None:
            self.spool.close()

    async def _run(self, executor: Executor, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, _run_connected, function, *args)


def _run_connected(function: Callable[..., T], *args: Any) -> T:
    """Run the function. After an error of the connection, the next one gets a new connection."""
    try:
        return function(*args)
    except OUTAGES:
        if not connection.in_atomic_block:
            connection.close()
        raise


def open_spool() -> tuple[ResultSpool, int]:
    """Record what killed gateways left, and return a spool for this process with the key of its worker.

    Its name tells other workers whose spool this is. It counts as stopped, because it claims no trials.
    """
    folder = Path(settings.RESULT_SPOOL_DIR)
    record_orphaned_results(folder)
    host, pid = socket.gethostname(), os.getpid()
    name = f"{host}:{pid}:{uuid.uuid4().hex[:8]}"
    process = {"name": name, "host": host, "pid": pid, "version": get_version()}
    worker = Worker.objects.create(**process, is_gateway=True, stopped_at=Now())
    return ResultSpool(folder, worker.name), worker.pk
