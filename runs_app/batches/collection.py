"""Collection of a batch's results: written line by line like other answers, fenced by the batch's key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal

from django.db import connection

from runs_app.batches.batch_file import Sql
from runs_app.batches.batch_lease import BatchLease, list_held_claims, release_trials, stop_run
from runs_app.batches.batch_size import MIN_POLL_S
from runs_app.batches.protocol import BatchApi, Line, Phase, State, parse_custom_id
from runs_app.batches.submission import refuse_batch, state_columns
from runs_app.engine import outcomes
from runs_app.engine.database_recovery import record_each
from runs_app.engine.design_cache import DesignCache
from runs_app.engine.jobs import INTERNAL_ERROR_MESSAGE, Job, build_jobs, build_result
from runs_app.engine.recorder import Result
from runs_app.engine.requests import PreparedRequest
from runs_app.llm import gateway
from runs_app.llm.calls import CallFailure, CallReply, ErrorClass
from runs_app.models import ProviderBatch

logger = logging.getLogger("evalsite.drain")

S = ProviderBatch.Status
LINES = 200  # Read and written together.
CHUNK_BYTES = 32 * 2**20
FULL_WAIT_S = 300.0
NO_ANSWER = "The batch ended without an answer to this call."
FORGOTTEN = "The provider does not know this batch any more."

SUMS = """
SELECT count(*) FILTER (WHERE outcome = 'ok'),
    count(*) FILTER (WHERE outcome IN ('transient', 'permanent', 'endpoint')),
    coalesce(sum(cost_usd), 0)
FROM runs_app_attempt WHERE run_id = %s AND token = %s
"""


async def collect_results(lease: BatchLease, api: BatchApi, sql: Sql) -> bool:
    """Read all results, settle the missing ones, and end the batch. A repeated collection writes nothing twice."""
    state = await api.retrieve(lease.batch.provider_id)
    await sql(lease.save, **state_columns(state))
    # The provider reported another phase before. Results that are not there yet are not missing.
    if state.phase == Phase.WORKING:
        await sql(lease.wait, MIN_POLL_S)
        return False
    if state.phase == Phase.FAILED:
        await sql(_failed, lease, state)
        return False
    questions = DesignCache()
    came = api.lines(lease.batch.provider_id, state.files)
    async for lines in _portions(came, most=2 * lease.batch.n_requests + LINES):
        await _write(lease, sql, questions, lines)
    await sql(_end, lease, state.phase)
    return False


async def _portions(lines: AsyncIterator[Line], most: int) -> AsyncIterator[list[Line]]:
    """Yield lines in portions, at most `most` lines in all, so that reading an endless reply ends."""
    portion: list[Line] = []
    size = read = 0
    async for line in lines:
        portion.append(line)
        size, read = size + len(line.body), read + 1
        if len(portion) >= LINES or size > CHUNK_BYTES:
            yield portion
            portion, size = [], 0
        if read >= most:
            logger.warning("a batch has more than %s lines; further lines are ignored", most)
            break
    if portion:
        yield portion


async def _write(lease: BatchLease, sql: Sql, questions: DesignCache, lines: Sequence[Line]) -> None:
    """Write the lines whose trials this batch still holds.

    Other lines were written before, or are not of this batch.
    """
    named = {trial: line for line in lines if (trial := parse_custom_id(line.custom_id, lease.batch.key)) is not None}
    jobs = await sql(_jobs, lease, questions, named)
    results = []
    for job in jobs:
        results.append(await _result(lease, job, named[job.claim.trial_id]))
        await asyncio.sleep(0)  # Reading takes a millisecond or two, so other tasks get their turn.
    if results:
        lease.recorded += await sql(record_each, results, lease.worker_id)


def _jobs(lease: BatchLease, questions: DesignCache, named: dict[int, Line]) -> list[Job]:
    return build_jobs(list_held_claims(lease, among=list(named)), questions)


async def _result(lease: BatchLease, job: Job, line: Line) -> Result:
    if line.code == "cancelled":
        return Result(job.claim, "pending", unspent=True)
    try:
        reply = await _reply(lease, job, line)
    except CallFailure as failure:
        return _failure(job, failure, unbilled=line.status is None)
    attempt = outcomes.build_attempt_from_reply(reply)
    conclusion = outcomes.build_answer_outcome(reply, job.scale)
    for columns in (conclusion.trial, attempt):
        columns["latency_ms"] = None  # A batch does not report the duration of one call.
    return build_result(job, conclusion, [attempt])


async def _reply(lease: BatchLease, job: Job, line: Line) -> CallReply:
    if line.status is None:
        raise CallFailure(ErrorClass.BATCH_EXPIRED, "The batch expired before this call was made.")
    if not isinstance(job.prepared, PreparedRequest):
        raise job.prepared
    try:
        return await gateway.read_batch_reply(job.prepared.request, line.status, line.body, lease.batch.discount)
    except CallFailure:
        raise
    except Exception:  # A fault of ours must not lose the other answers of the batch, which are paid, too.
        logger.exception("the answer of trial %s raised an error", job.claim.trial_id)
        raise CallFailure(ErrorClass.INTERNAL_ERROR, INTERNAL_ERROR_MESSAGE) from None


def _failure(job: Job, failure: CallFailure, *, unbilled: bool = False) -> Result:
    """Return the result of a failed call. It does not pause the endpoint, because batches have limits of their own."""
    attempt = outcomes.build_attempt_from_failure(failure) | {"latency_ms": None}
    if unbilled:
        attempt["cost_usd"] = Decimal(0)
    conclusion = outcomes.build_failure_outcome(
        failure, attempts=job.claim.attempts, yields=job.claim.yields, retry=job.retry
    )
    result = build_result(job, conclusion, [attempt])
    result.pause_s = result.allowance = None
    return result


def _end(lease: BatchLease, phase: Phase) -> None:
    """Settle the calls without an answer, according to how the batch ended."""
    if phase == Phase.CANCELLED:
        release_trials(lease)
    elif phase == Phase.EXPIRED:
        _fail_rest(lease, ErrorClass.BATCH_EXPIRED, "The batch expired before this call was made.", unbilled=True)
    else:
        _fail_rest(lease, ErrorClass.MALFORMED_REPLY, NO_ANSWER)
    target = {Phase.CANCELLED: S.CANCELLED, Phase.EXPIRED: S.EXPIRED}.get(phase, S.COLLECTED)
    lease.end(target, "All that came was written.", **_sums(lease.batch))


def _fail_rest(lease: BatchLease, kind: ErrorClass, words: str, *, unbilled: bool = False) -> None:
    questions = DesignCache()
    while claims := list_held_claims(lease):
        jobs = build_jobs(claims, questions)
        results = [_failure(job, CallFailure(kind, words), unbilled=unbilled) for job in jobs]
        lease.recorded += record_each(results, lease.worker_id)


def _failed(lease: BatchLease, state: State) -> None:
    """End a batch that the provider refused as a whole. If it only lacks capacity now, the trials are asked later."""
    if not state.is_full:
        refuse_batch(lease, state.problem or "without a message")
        return
    release_trials(lease, wait_s=FULL_WAIT_S)
    lease.end(S.FAILED, f"The provider has no room for it now: {state.problem}", error=state.problem)


def handle_unknown_batch(lease: BatchLease) -> None:
    """End a batch that its provider does not know any more, and stop its run.

    The batch may have been billed, so its reservation is kept.
    """
    stop_run(lease, FORGOTTEN)
    _fail_rest(lease, ErrorClass.MALFORMED_REPLY, FORGOTTEN)
    lease.end(S.FAILED, FORGOTTEN, error=FORGOTTEN, **_sums(lease.batch))


def _sums(batch: ProviderBatch) -> dict[str, int | Decimal]:
    """Return the sums over the calls with the batch's key. They stay the same however often it is collected."""
    with connection.cursor() as cursor:
        cursor.execute(SUMS, [batch.run_id, batch.key])
        answered, failed, spent = cursor.fetchone()
    return {"n_answered": answered, "n_failed": failed, "spent_usd": spent}
