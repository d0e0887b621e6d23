"""The queue of external calls in one process: it admits and records them in groups, one transaction for each group.

The event loop never waits for the database. Threads with a connection of their own run the transactions: one admits,
one records, one reads. A reply is in the result spool before its program receives it, and in the database some
milliseconds later. So a program never waits for the second transaction, and a killed process loses no reply. A queue
with a spool also prepares calls (`prepared_calls`), so that programs rarely wait for the first transaction either.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models.functions import Now

from evalsite.lib.ops.versions import get_version
from runs_app.engine.admission import Claim
from runs_app.engine.external_calls import ExternalRequest, begin_calls
from runs_app.engine.prepared_calls import (
    REFRESH_S,
    Plan,
    Prepared,
    PreparedCalls,
    StartedCall,
    delete_unused,
    record_and_prepare,
    recover_prepared,
    store_starts,
)
from runs_app.engine.recorder import Result, group_by_endpoint, split_batches
from runs_app.engine.recovery import OUTAGES, describe_outage, record_each
from runs_app.engine.result_spool import ResultSpool, record_orphaned_results
from runs_app.models import Worker

logger = logging.getLogger("evalsite.gateway")

MAX_GROUP = 64
RECORD_AFTER_S = 0.025  # So that a program's next call finds no lock, and replies share a transaction.
PREPARE_AFTER_S = 0.01  # If few prepared calls are left.
START_AFTER_S = 0.2  # The start of a short call shares the transaction of its reply.
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
    """The external calls of one event loop. `in_flight` has a future for each, by the key of its request."""

    executors: Executors
    spool: ResultSpool | None = None
    worker_id: int | None = None
    record_after_s: float = RECORD_AFTER_S
    calls: set[asyncio.Task[Any]] = field(default_factory=set)
    prepared: PreparedCalls | None = None
    in_flight: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    _waiting: deque[tuple[ExternalRequest, asyncio.Future[Claim]]] = field(default_factory=deque)
    _starts: list[StartedCall] = field(default_factory=list)
    _results: list[Result] = field(default_factory=list)
    _admitting: asyncio.Task[None] | None = None
    _writing: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _is_due: bool = False
    _is_recording: bool = False
    _had_outage: bool = False

    async def read(self, function: Callable[..., T], *args: Any) -> T:
        """Return the function's result from the thread that reads."""
        return await self._run(self.executors.reading, function, *args)

    async def admit(self, call: ExternalRequest) -> Claim:
        """Return the claim of a call. Raise NotAdmitted if it may not start now."""
        if self.prepared is None or call.from_cache:
            return await self._admit(call)
        claim = self._start_prepared(call)
        self._write_in(PREPARE_AFTER_S if self.prepared.is_short(call.run.pk) else START_AFTER_S)
        if claim is None:
            claim = await self._admit(call)
        self.prepared.begin(claim)
        return claim

    def _start_prepared(self, call: ExternalRequest) -> Claim | None:
        """Return a prepared claim for the call, or None. The start of the call is then in the result spool."""
        if self.prepared is None or self.spool is None or (claim := self.prepared.take(call)) is None:
            return None
        start = StartedCall.build(claim, call)
        if not self.spool.add(start):
            self.prepared.put_back(claim)
            return None
        self._starts.append(start)
        return claim

    async def _admit(self, call: ExternalRequest) -> Claim:
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
        if self.prepared is not None:
            self.prepared.end(result.claim)
        self._results.append(result)
        self._write_in(self.record_after_s)

    def _write_in(self, seconds: float) -> None:
        """Write in so many seconds, or earlier if that was planned."""
        loop = asyncio.get_running_loop()
        if self._timer is not None and self._timer.when() <= loop.time() + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._write_now)

    def _write_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._is_due = None, True
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_due())

    async def _write_due(self) -> None:
        while self._is_due:
            self._is_due = False
            starts, self._starts = self._starts, []
            results, self._results = self._results, []
            self._is_recording = bool(results)
            if self.prepared is None:
                await self._insist(results, record_each, results, self.worker_id)
            else:
                await self._write_and_prepare(self.prepared, starts, results)
            self._is_recording = False
            if self.spool is not None:
                self.spool.keep_only([*self._starts, *self._results])

    async def _write_and_prepare(
        self, prepared: PreparedCalls, starts: list[StartedCall], results: list[Result]
    ) -> None:
        began, plans = time.monotonic(), prepared.plan()
        unused = prepared.take_unused()
        found = await self._insist(results, _write_group, starts, results, plans, unused, self.worker_id)
        for endpoint_id, plan in plans.items():
            prepared.apply(plan, found.get(endpoint_id, Prepared()), began)
        if self._had_outage:  # A commit without a reply may have prepared calls of which this process does not know.
            self._had_outage = False
            known = prepared.list_known() | {start.claim.trial_id for start in self._starts}
            await self._insist([], recover_prepared, self.worker_id, known)
        if prepared.is_active:
            self._write_in(REFRESH_S)

    async def _insist(self, results: Sequence[Result], function: Callable[..., T], *arguments: Any) -> T:
        """Return the function's result from the thread that records. Wait for the end of outages of the database."""
        while True:
            try:
                return await self._run(self.executors.recording, function, *arguments)
            except OUTAGES as error:
                self._had_outage = True
                logger.warning("%s; %s replies wait", describe_outage(error), len(results) + len(self._results))
                await asyncio.sleep(OUTAGE_WAIT_S)

    async def flush(self, call: ExternalRequest) -> bool:
        """Free the slots and reservations that may keep this call from starting.

        Record the results that wait, and release prepared calls of its endpoint and experiment. Return whether there
        were any.
        """
        had_prepared = self.prepared is not None and self.prepared.release(call)
        if not (self._results or self._is_recording or had_prepared):
            return False
        await self.write()
        return True

    async def write(self) -> None:
        """Record the results so far."""
        self._write_now()
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def finish(self, seconds: float | None = None) -> None:
        """Wait for the calls in flight, at most these seconds, and record all results."""
        if self.calls:
            await asyncio.wait(self.calls, timeout=seconds)
        if self.prepared is not None:
            self.prepared.is_closed = True
        for _ in range(2):  # The first one may end a transaction that prepares calls.
            if self._results or self._starts or (self.prepared is not None and self.prepared.is_active):
                self._write_now()
            if self._writing is not None and not self._writing.done():
                await asyncio.wait([self._writing], timeout=seconds)
        if self._timer is not None:
            self._timer.cancel()
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


def _write_group(
    starts: Sequence[StartedCall],
    results: Sequence[Result],
    plans: Mapping[int, Plan],
    unused: Sequence[Claim],
    worker_id: int,
) -> dict[int, Prepared]:
    """Store starts, record results and prepare calls, one transaction for each endpoint. Return what each found."""
    try:
        delete_unused(unused)
    except OUTAGES:
        raise
    except DatabaseError:
        logger.exception("%s prepared calls cannot be released; their leases end them", len(unused))
    starts_of, results_of = defaultdict(list), group_by_endpoint(results)
    for start in starts:
        starts_of[start.claim.counter_keys.endpoint_id].append(start)
    found = {}
    for endpoint_id in sorted({*plans, *starts_of, *results_of}):
        own, plan = starts_of[endpoint_id], plans.get(endpoint_id, Plan())
        *earlier, last = list(split_batches(results_of.get(endpoint_id, []))) or [[]]
        try:
            if earlier:
                store_starts(own)
            for batch in earlier:
                record_each(batch, worker_id)
            found[endpoint_id] = record_and_prepare(endpoint_id, own, last, plan, worker_id)
        except OUTAGES:
            raise
        except DatabaseError:
            logger.exception("endpoint %s: recording calls one by one after an error", endpoint_id)
            _store_each(own)
            record_each(last, worker_id)
    return found


def _store_each(starts: Sequence[StartedCall]) -> None:
    for start in starts:
        try:
            store_starts([start])
        except OUTAGES:
            raise
        except DatabaseError:
            logger.exception("the request of trial %s cannot be stored", start.claim.trial_id)


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
