"""Submitted batches: they are polled, then their results are collected and recorded as other answers, or cancelled.

Results are fenced by the batch's key. After a cancellation, answered calls are paid and collected, and the other trials
are released.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from decimal import Decimal

from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from runs_app.batches.batch_lease import BatchLease
from runs_app.batches.protocol import (
    MIN_POLL_S,
    AmbiguousSubmission,
    BatchApi,
    Line,
    Phase,
    State,
    compute_poll_interval_s,
    parse_custom_id,
)
from runs_app.batches.submission import Sql, Submission, build_state_columns, refuse_batch, schedule_search
from runs_app.engine import outcomes
from runs_app.engine.design_cache import DesignCache
from runs_app.engine.jobs import INTERNAL_ERROR_MESSAGE, Job, build_jobs
from runs_app.engine.recorder import Result
from runs_app.engine.recovery import record_each
from runs_app.engine.requests import PreparedRequest
from runs_app.llm import gateway
from runs_app.llm.calls import CallFailure, CallReply, ErrorClass
from runs_app.models import Attempt, ProviderBatch

logger = logging.getLogger("evalsite.drain")


S = ProviderBatch.Status


CANCELLATION_REQUESTED = frozenset({"cancelling", "canceling"})


LINES_PER_CHUNK = 200  # Read and written together.


CHUNK_BYTES = 32 * 2**20


CAPACITY_WAIT_S = 300.0


NO_ANSWER = "The batch ended without an answer to this call."


UNKNOWN_BATCH = "The provider no longer has this batch."


async def poll_batch(lease: BatchLease, api: BatchApi, sql: Sql) -> bool:
    """Move the batch to collection if it has ended at the provider, else schedule the next poll."""
    state = await api.retrieve(lease.batch.provider_id)
    await sql(lease.save, **build_state_columns(state))
    if state.phase == Phase.WORKING:
        await sql(lease.wait, compute_poll_interval_s(get_batch_age_s(lease)), tries=0, error="")
        return False
    await sql(lease.move, S.COLLECTING, f"The provider reports the status {state.status_name}.")
    return True


def get_batch_age_s(lease: BatchLease) -> float:
    """Return the seconds since the submission. This machine's clock suffices: only the poll interval uses it."""
    start = lease.batch.submitted_at or lease.batch.created_at
    return max(0.0, (timezone.now() - start).total_seconds())


async def take_cancel_step(lease: BatchLease, api: BatchApi, sql: Sql, submission: Submission) -> bool:
    """Take one step: find the batch, cancel it at the provider, or wait for its end. Then its answers are collected."""
    if not lease.batch.provider_id:
        return await _cancel_unknown(lease, sql, submission)
    state = await api.retrieve(lease.batch.provider_id)
    if state.phase == Phase.WORKING and state.status_name not in CANCELLATION_REQUESTED:
        state = await api.cancel(lease.batch.provider_id)
    await sql(lease.save, **build_state_columns(state))
    if state.phase == Phase.WORKING:
        await sql(lease.wait, min(compute_poll_interval_s(get_batch_age_s(lease)), 10 * MIN_POLL_S), tries=0, error="")
        return False
    await sql(lease.move, S.COLLECTING, f"The provider reports the status {state.status_name}.")
    return True


async def _cancel_unknown(lease: BatchLease, sql: Sql, submission: Submission) -> bool:
    """Cancel a batch without an id at the provider. If it may have been submitted, search for it first."""
    if lease.batch.search_until is not None:
        try:
            state = await submission.search()
        except AmbiguousSubmission as ambiguous:
            await sql(schedule_search, lease, ambiguous.candidates)
            return False
        if state is not None:
            await sql(lease.save, submitted_at=Now(), provider_id=state.provider_id, **build_state_columns(state))
            return True
    await sql(end_unsubmitted, lease, "It was never submitted.")
    return False


async def collect_results(lease: BatchLease, api: BatchApi, sql: Sql) -> bool:
    """Record all results, then the calls without a result, and end the batch. Repeating this writes nothing twice."""
    state = await api.retrieve(lease.batch.provider_id)
    await sql(lease.save, **build_state_columns(state))
    # The provider reported its end before, but not now. So results that are absent may still come.
    if state.phase == Phase.WORKING:
        await sql(lease.wait, MIN_POLL_S)
        return False
    if state.phase == Phase.FAILED:
        await sql(_end_failed, lease, state)
        return False
    designs = DesignCache()
    all_lines = api.iter_lines(lease.batch.provider_id, state.files)
    async for lines in _iter_chunks(all_lines, max_lines=2 * lease.batch.n_requests + LINES_PER_CHUNK):
        # Record the lines whose trials this batch still holds. Others were recorded before, or belong to another batch.
        by_trial = {
            trial: line for line in lines if (trial := parse_custom_id(line.custom_id, lease.batch.key)) is not None
        }
        jobs = await sql(_build_jobs, lease, designs, by_trial)
        results = []
        for job in jobs:
            results.append(await _build_line_result(lease, job, by_trial[job.claim.trial_id]))
            await asyncio.sleep(0)  # Reading takes a millisecond or two, so let other tasks run.
        if results:
            lease.recorded += await sql(record_each, results, lease.worker_id)
    await sql(_end_batch, lease, state.phase)
    return False


async def _iter_chunks(lines: AsyncIterator[Line], max_lines: int) -> AsyncIterator[list[Line]]:
    """Yield lines in chunks, at most `max_lines` in all, so that an endless reply does not block the worker."""
    chunk: list[Line] = []
    size = read = 0
    async for line in lines:
        chunk.append(line)
        size, read = size + len(line.body), read + 1
        if len(chunk) >= LINES_PER_CHUNK or size > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        if read >= max_lines:
            logger.warning("a batch has more than %s lines; further lines are ignored", max_lines)
            break
    if chunk:
        yield chunk


def _build_jobs(lease: BatchLease, designs: DesignCache, by_trial: dict[int, Line]) -> list[Job]:
    return build_jobs(lease.list_held_claims(among=list(by_trial)), designs)


async def _build_line_result(lease: BatchLease, job: Job, line: Line) -> Result:
    if line.code == "cancelled":
        return Result(job.claim, "pending", released=True)
    try:
        reply = await _read_reply(lease, job, line)
    except CallFailure as failure:
        return _build_failed_result(job, failure, unbilled=line.status is None)
    attempt = outcomes.build_attempt_from_reply(reply)
    outcome = outcomes.build_answer_outcome(reply, job.scale)
    for columns in (outcome.trial, attempt):
        columns["latency_ms"] = None  # A batch does not report the duration of one call.
    return job.build_result(outcome, [attempt])


async def _read_reply(lease: BatchLease, job: Job, line: Line) -> CallReply:
    if line.status is None:
        raise CallFailure(ErrorClass.BATCH_EXPIRED, "The batch expired before this call was made.")
    if not isinstance(job.prepared, PreparedRequest):
        raise job.prepared
    try:
        return await gateway.read_batch_reply(job.prepared.request, line.status, line.body, lease.batch.discount)
    except CallFailure:
        raise
    except Exception:  # An error in our code must not lose the other answers of the batch, which are paid, too.
        logger.exception("the answer of trial %s raised an error", job.claim.trial_id)
        raise CallFailure(ErrorClass.INTERNAL_ERROR, INTERNAL_ERROR_MESSAGE) from None


def _build_failed_result(job: Job, failure: CallFailure, *, unbilled: bool = False) -> Result:
    """Return the result of a failed call. It does not pause the endpoint, because batches have separate limits."""
    attempt = outcomes.build_attempt_from_failure(failure) | {"latency_ms": None}
    if unbilled:
        attempt["cost_usd"] = Decimal(0)
    outcome = outcomes.build_failure_outcome(
        failure, attempts=job.claim.attempts, yields=job.claim.yields, retry=job.retry
    )
    result = job.build_result(outcome, [attempt])
    result.pause_s = result.allowance = None
    return result


def _end_batch(lease: BatchLease, phase: Phase) -> None:
    """End a batch. Its end decides the outcome of the calls without an answer."""
    if phase == Phase.CANCELLED:
        lease.release_trials()
    elif phase == Phase.EXPIRED:
        _fail_missing(lease, ErrorClass.BATCH_EXPIRED, "The batch expired before this call was made.", unbilled=True)
    else:
        _fail_missing(lease, ErrorClass.MALFORMED_REPLY, NO_ANSWER)
    target = {Phase.CANCELLED: S.CANCELLED, Phase.EXPIRED: S.EXPIRED}.get(phase, S.COLLECTED)
    lease.end(target, "All results were recorded.", **_sum_attempts(lease.batch))


def _fail_missing(lease: BatchLease, kind: ErrorClass, message: str, *, unbilled: bool = False) -> None:
    designs = DesignCache()
    while claims := lease.list_held_claims():
        jobs = build_jobs(claims, designs)
        results = [_build_failed_result(job, CallFailure(kind, message), unbilled=unbilled) for job in jobs]
        lease.recorded += record_each(results, lease.worker_id)


def _end_failed(lease: BatchLease, state: State) -> None:
    """End a batch that the provider refused as a whole. If it only lacks capacity now, the trials wait for a retry."""
    if not state.is_full:
        refuse_batch(lease, state.problem or "without a message")
        return
    lease.release_trials(wait_s=CAPACITY_WAIT_S)
    lease.end(S.FAILED, f"The provider has no capacity for it now: {state.problem}", error=state.problem)


def handle_unknown_batch(lease: BatchLease) -> None:
    """End a batch that its provider no longer has, and stop its run.

    The provider may have billed the batch, so its reservation is kept.
    """
    lease.stop_run(UNKNOWN_BATCH)
    _fail_missing(lease, ErrorClass.MALFORMED_REPLY, UNKNOWN_BATCH)
    lease.end(S.FAILED, UNKNOWN_BATCH, error=UNKNOWN_BATCH, **_sum_attempts(lease.batch))


def _sum_attempts(batch: ProviderBatch) -> dict[str, int | Decimal]:
    """Return the sums over the attempts with the batch's key. A repeated collection yields the same sums."""
    failures = (Attempt.Outcome.TRANSIENT, Attempt.Outcome.PERMANENT, Attempt.Outcome.ENDPOINT)
    return Attempt.objects.filter(run=batch.run_id, token=batch.key).aggregate(
        n_answered=Count("pk", filter=Q(outcome=Attempt.Outcome.OK)),
        n_failed=Count("pk", filter=Q(outcome__in=failures)),
        spent_usd=Coalesce(Sum("cost_usd"), Decimal(0)),
    )


def end_unsubmitted(lease: BatchLease, reason: str) -> None:
    """End a batch that was never submitted, and release its trials."""
    lease.release_trials()
    lease.end(S.CANCELLED, reason)
