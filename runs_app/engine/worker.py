"""A worker's drain: claim, call and record trials, until no work is left or the time is up.

One event loop runs the calls in flight. One thread holds the database connection and runs all SQL in cycles. A cycle
writes the received answers, then claims trials for the free slots, and prefetches a few more. While a cycle waits for
its commit, answers gather. So the busier the worker is, the larger its batches are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from django.conf import settings
from django.db import close_old_connections, connections

from evalsite.lib.ops.versions import SchemaMismatch
from evalsite.lib.sql import fetch_rows
from runs_app.engine import outcomes, requests
from runs_app.engine.adaptive_rounds import RoundScheduler
from runs_app.engine.admission import Claim, WorkerCapacity
from runs_app.engine.claim_order import ClaimPositions
from runs_app.engine.design_cache import DesignCache
from runs_app.engine.jobs import INTERNAL_ERROR_MESSAGE, STALE_S, Job, PrefetchQueue, prepare_jobs
from runs_app.engine.leases import LeaseWatchdog, renew_leases, sweep_expired
from runs_app.engine.model_state import RecentRefusals, note_call, remember_refusal, was_refused
from runs_app.engine.prepared_sql import discard_plans
from runs_app.engine.recorder import Result
from runs_app.engine.recovery import (
    OUTAGES,
    describe_outage,
    is_out_of_resources,
    record_each,
    release_unknown_claims,
)
from runs_app.engine.result_spool import ResultSpool, record_orphaned_results
from runs_app.engine.worker_cycle import run_cycle
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.llm.calls import CallFailure, CallReply, CallRequest, ErrorClass
from runs_app.models import ProviderBatch, Run

logger = logging.getLogger("evalsite.drain")
T = TypeVar("T")
Caller = Callable[[CallRequest], Awaitable[CallReply]]
Evictor = Callable[[CallRequest], Awaitable[None]]

GATHER_S = 0.005  # The time in which answers gather before a cycle writes them.
GATHER_AHEAD_S = 0.01  # The same while prefetched jobs fill the free slots.
IDLE_S = 0.5  # The time between two cycles of a worker without work.
HEARTBEAT_S = 5.0
SWEEP_S = 5.0
OUTAGE_S = 1.0  # The time between two tries to reach the database during an outage.


@dataclass(frozen=True, slots=True)
class DrainLimits:
    """The limits of a drain: at most `concurrency` calls in flight, and no claims after `seconds` (None: no limit).

    `until_idle` ends it when no run has work left. A stop waits `grace_s` for calls in flight, then releases them.
    """

    concurrency: int = 256
    seconds: float | None = None
    until_idle: bool = False
    grace_s: float = 10.0


class BackgroundWork(Protocol):
    """Work that runs beside the calls until it is cancelled. `recorded` counts the results that it wrote."""

    recorded: int

    async def run(self) -> None: ...


@dataclass(slots=True)
class Drain:
    """One worker's drain. `call` is the gateway's `call`, or another function that answers requests.

    `evict` unloads a stalled model from a local server. `recorded` counts the results of calls that it has written.
    `make_batch_worker` takes a function that runs work in the database thread, and the worker's id. Without it, the
    drain handles no provider batches.
    """

    call: Caller
    registration: WorkerRegistration
    limits: DrainLimits = field(default_factory=DrainLimits)
    recorded: int = 0
    evict: Evictor | None = None
    make_batch_worker: Callable[[Callable[..., Awaitable[Any]], int], BackgroundWork] | None = None
    _tasks: dict[asyncio.Task[bool], Claim] = field(default_factory=dict)
    _in_flight: Counter[int] = field(default_factory=Counter)  # By endpoint.
    _prefetched: PrefetchQueue = field(default_factory=PrefetchQueue)
    _results: list[Result] = field(default_factory=list)
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _lost_connection: bool = False
    _mismatch: SchemaMismatch | None = None
    _designs: DesignCache = field(default_factory=DesignCache)
    _refusals: RecentRefusals = field(default_factory=RecentRefusals)
    _rounds: RoundScheduler = field(default_factory=RoundScheduler)
    _positions: ClaimPositions = field(default_factory=ClaimPositions)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "drain-db"))
    _watchdog: LeaseWatchdog = field(init=False)
    _spool: ResultSpool = field(init=False)
    _batch_worker: BackgroundWork | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.make_batch_worker:
            self._batch_worker = self.make_batch_worker(self._sql, self.registration.worker_id)
        self._watchdog = LeaseWatchdog(self.registration.worker_id, lambda: self._designs.shortest_lease_s)
        self._spool = ResultSpool(settings.RESULT_SPOOL_DIR, self.registration.name)

    def stop(self) -> None:
        """Stop claiming, then end. A signal handler of the loop may call this."""
        self._stop.set()
        self._wakeup.set()

    async def run(self) -> int:
        """Run the drain, and return the number of results written.

        Raise SchemaMismatch at the end if the database was migrated meanwhile.
        """
        deadline = time.monotonic() + self.limits.seconds if self.limits.seconds is not None else None
        self._watchdog.start()
        background_tasks = [asyncio.create_task(self._keep_alive())]
        if self._batch_worker:
            background_tasks.append(asyncio.create_task(self._batch_worker.run()))
        try:
            while not self._stop.is_set() and (deadline is None or time.monotonic() < deadline):
                if not await self._run_cycle():
                    break
            await self._finish_calls()
        finally:
            for background_task in background_tasks:
                background_task.cancel()
            await asyncio.gather(*background_tasks, return_exceptions=True)
            self._watchdog.stop()
            self._spool.close()
            await self._sql(self.registration.leave)
            await self._sql(connections.close_all)
            self._thread.shutdown()
        if self._mismatch:
            raise self._mismatch
        return self.total_recorded

    @property
    def total_recorded(self) -> int:
        """Return the number of results written, both of calls and of batches."""
        return self.recorded + (self._batch_worker.recorded if self._batch_worker else 0)

    async def _run_cycle(self) -> bool:
        """Write results, claim trials, and wait for the next results. Return False when no work is left."""
        if self._lost_connection:
            await self._release_unknown()
        self._release(self._prefetched.take_stale())
        capacity = WorkerCapacity(
            self.limits.concurrency,
            +self._in_flight,
            self._prefetched.sizes(),
            self._prefetched.target_sizes(),
            self._positions,
        )
        recorded, jobs, levels = await self._sql(self._write_and_claim, self._take_results(), capacity)
        self._note_recorded(recorded)
        self._prefetched.add(jobs, levels)
        self._start_calls()
        if not self._tasks and not self._results:
            if await self._sql(self._rounds.decide_now):
                return True
            if self.limits.until_idle and not await self._sql(has_work_left):
                return False
            await self._wait(IDLE_S)
        else:
            await self._wait(IDLE_S)
            await asyncio.sleep(GATHER_AHEAD_S if self._prefetched else GATHER_S)
        return True

    async def _release_unknown(self) -> None:
        """Release claims that this worker never received, because the connection broke after their commit."""
        self._lost_connection = False
        known_keys = {claim.key for claim in self._list_claims()}
        await self._sql(release_unknown_claims, self.registration.worker_id, known_keys)

    def _take_results(self) -> list[Result]:
        results, self._results = self._results, []
        self._wakeup.clear()
        return results

    def _note_recorded(self, recorded: int) -> None:
        """Count the results that the database now has, and drop them from the spool."""
        self.recorded += recorded
        self._spool.keep_only(self._results)

    async def _wait(self, seconds: float) -> None:
        if self._stop.is_set():
            return
        try:
            await asyncio.wait_for(self._wakeup.wait(), seconds)
        except TimeoutError:
            return

    def _write_and_claim(
        self, results: list[Result], capacity: WorkerCapacity
    ) -> tuple[int, list[Job], dict[int, int]]:
        self._rounds.decide_if_due()
        worker_id = self.registration.worker_id
        cycle = run_cycle(results, worker_id, capacity)
        return cycle.recorded, prepare_jobs(cycle.claims, self._designs, worker_id), cycle.levels

    def _start_calls(self) -> None:
        for job in self._prefetched.take_startable(self._in_flight):
            task = asyncio.get_running_loop().create_task(self._make_call(job))
            self._tasks[task] = job.claim
            self._in_flight[job.claim.counter_keys.endpoint_id] += 1
            task.add_done_callback(self._on_call_done)

    def _on_call_done(self, task: asyncio.Task[bool]) -> None:
        """Start the next call after an answer.

        A failure may stop its run or slow its endpoint, so after a failure the next cycle decides.
        """
        endpoint_id = self._tasks.pop(task).counter_keys.endpoint_id
        self._in_flight[endpoint_id] -= 1
        answered = not task.cancelled() and task.exception() is None and task.result()
        if answered and not self._stop.is_set():
            self._prefetched.note_answer(endpoint_id)
            self._start_calls()
        self._wakeup.set()

    def _release(self, jobs: Iterable[Job]) -> None:
        """Release jobs whose calls were never made."""
        for job in jobs:
            self._results.append(job.build_result(outcomes.build_release_outcome(), []))

    async def _make_call(self, job: Job) -> bool:
        """Make a job's call, and return whether it was answered."""
        calls: list[dict[str, Any]] = []
        try:
            outcome = await self._get_outcome(job, calls)
        except asyncio.CancelledError:
            calls.append({"outcome": "released", "call": len(calls), "cost_usd": 0 if job.is_free else None})
            outcome = outcomes.build_release_outcome()
        result = job.build_result(outcome, calls)
        self._spool.add(result)
        self._results.append(result)
        if outcome.pause_s is not None:  # The endpoint asks for a pause, so none of its waiting jobs may start.
            self._release(self._prefetched.take_endpoint(job.claim.counter_keys.endpoint_id))
        if job.model_id is not None and was_refused(calls) and job.model_id not in self._refusals:
            self._refusals.add(job.model_id)
            await self._sql(remember_refusal, job.model_id, calls[0]["error"], self.registration.name)
        if (
            job.local_model is not None
            and self.evict is not None
            and isinstance(job.prepared, requests.PreparedRequest)
        ):
            await self._check_for_stall(job.local_model, job.prepared.request, calls)
        return outcome.status == "done"

    async def _check_for_stall(self, model_id: int, request: CallRequest, calls: list[dict[str, Any]]) -> None:
        """Count a time-out or an answer, and unload a stalled model.

        The result is already in the spool, so an error here loses nothing.
        """
        stalled = await self._sql(note_call, model_id, calls[-1], self.registration.name)
        if stalled and self.evict:
            await self.evict(request)

    async def _get_outcome(self, job: Job, calls: list[dict[str, Any]]) -> outcomes.Outcome:
        if job.cached_reply is not None:
            calls.append(outcomes.build_attempt_from_cache(job.cached_reply))
            return outcomes.build_cached_outcome(job.cached_reply, job.scale)
        try:
            reply = await self._get_reply(job, calls)
            calls.append(outcomes.build_attempt_from_reply(reply) | {"call": len(calls)})
            return outcomes.build_answer_outcome(reply, job.scale)
        except CallFailure as error:
            failure = error
        except Exception:  # An error in our code must not leave a trial claimed or end the drain for the other calls.
            logger.exception("the call of trial %s raised an error", job.claim.trial_id)
            failure = CallFailure(ErrorClass.INTERNAL_ERROR, INTERNAL_ERROR_MESSAGE)
        calls.append(outcomes.build_attempt_from_failure(failure) | {"call": len(calls)})
        return outcomes.build_failure_outcome(
            failure, attempts=job.claim.attempts, yields=job.claim.yields, retry=job.retry
        )

    async def _get_reply(self, job: Job, calls: list[dict[str, Any]]) -> CallReply:
        prepared = job.prepared
        if isinstance(prepared, CallFailure):
            raise prepared
        if job.model_id in self._refusals:
            prepared = prepared.drop_schema()
        try:
            return await self.call(prepared.request)
        except CallFailure as failure:
            if failure.error_class != ErrorClass.RESPONSE_FORMAT_UNSUPPORTED:
                raise
            # The provider does not support schemas: call again without one, and record this as a second call.
            calls.append(outcomes.build_attempt_from_failure(failure) | {"call": 0})
        return await self.call(prepared.drop_schema().request)

    async def _finish_calls(self) -> None:
        """Write the results of the calls that are still in flight.

        After a stop, release the calls that take longer than the grace period.
        """
        ends: float | None = None
        while self._tasks or self._results or self._prefetched:
            self._release(self._prefetched.take_stale(older_than_s=0 if self._stop.is_set() else STALE_S))
            if self._stop.is_set():
                ends = ends or time.monotonic() + self.limits.grace_s
                if time.monotonic() >= ends:
                    for task in self._tasks:
                        task.cancel()
            self._note_recorded(await self._sql(record_each, self._take_results(), self.registration.worker_id))
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=GATHER_S, return_when=asyncio.FIRST_COMPLETED)
            elif self._prefetched:
                await asyncio.sleep(GATHER_S)
        if self._lost_connection:
            await self._release_unknown()

    async def _keep_alive(self) -> None:
        """Renew the leases of this worker's claims, write its heartbeat, and sweep the claims of silent workers."""
        renewed = swept = time.monotonic()
        while True:
            now = time.monotonic()
            try:
                if now - renewed >= self._designs.shortest_lease_s / 4:
                    renewed = now
                    await self._renew()
                await self._sql(record_orphaned_results, settings.RESULT_SPOOL_DIR)
                if now - swept >= SWEEP_S:
                    swept = now
                    await self._sql(self._sweep, renewed)
                    await self._sql(discard_plans)
                await self._sql(self.registration.send_heartbeat, len(self._tasks), self.total_recorded)
            # The database was migrated meanwhile: record the calls in flight, and claim no more.
            except SchemaMismatch as mismatch:
                self._mismatch = mismatch
                self.stop()
            # Without heartbeats, other workers would claim all calls in flight and pay for them again.
            except Exception:
                logger.exception("a heartbeat failed")
            await asyncio.sleep(min(HEARTBEAT_S, self._designs.shortest_lease_s / 4))

    def _sweep(self, renewed: float) -> None:
        """Release expired claims, unless this process was stopped since it renewed its leases: they may be its own."""
        if time.monotonic() - renewed < self._designs.shortest_lease_s / 2:
            sweep_expired()

    async def _renew(self) -> None:
        held = self._list_claims()
        await self._sql(renew_leases, [claim.trial_id for claim in held], list({claim.token for claim in held}))
        self._watchdog.heartbeat()

    def _list_claims(self) -> list[Claim]:
        """Return this worker's claims: prefetched, in flight, and answered but not yet recorded."""
        return [*self._prefetched.iter_claims(), *self._tasks.values(), *(result.claim for result in self._results)]

    async def _sql(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work` in the database thread. During an outage, wait and try again: nothing is lost meanwhile.

        All work consists of whole transactions, so a second try writes nothing twice. Tokens fence what was written
        before the connection broke.
        """
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, _run_connected, work, *arguments)
            except OUTAGES as error:
                self._lost_connection = True
                logger.warning("%s", describe_outage(error))
                if is_out_of_resources(error):
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self._thread, self.registration.note_trouble, describe_outage(error))
                await asyncio.sleep(OUTAGE_S)


def _run_connected(work: Callable[..., T], *arguments: Any) -> T:
    close_old_connections()
    return work(*arguments)


HAS_CALLS_LEFT = """
SELECT EXISTS (SELECT 1 FROM runs_app_run r WHERE r.status = 'running' AND (
    (r.n_pending + r.n_running > 0 AND NOT r.is_batched)
    OR ((r.n_pending + r.n_running = 0 OR NOT r.is_batched)
        AND EXISTS (SELECT FROM runs_app_point p WHERE p.run_id = r.id AND p.status = 'open'))))
"""


def has_calls_left() -> bool:
    """Return whether any running run has unfinished calls, or open points that may get more calls.

    Calls of other workers count. The points of a batched run wait for its batches, not for a drain.
    """
    return bool(fetch_rows(HAS_CALLS_LEFT)[0][0])


def has_work_left() -> bool:
    """Return whether calls or batches are left: open batches, and batches still to be submitted."""
    batched = Run.objects.filter(status=Run.Status.RUNNING, is_batched=True, n_pending__gt=0)
    return has_calls_left() or ProviderBatch.objects.open().exists() or batched.exists()
