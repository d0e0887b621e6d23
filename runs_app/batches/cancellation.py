"""Cancellation of batches: answered calls are paid and collected, the other trials are released."""

from __future__ import annotations

from django.db.models.functions import Now

from runs_app.batches.batch_file import Sql
from runs_app.batches.batch_lease import BatchLease, release_trials
from runs_app.batches.batch_size import MIN_POLL_S, compute_poll_interval_s
from runs_app.batches.protocol import AmbiguousSubmission, BatchApi, Phase
from runs_app.batches.status_poll import get_batch_age_s
from runs_app.batches.submission import Submission, build_state_columns, schedule_search
from runs_app.models import ProviderBatch

S = ProviderBatch.Status
CANCELLATION_REQUESTED = frozenset({"cancelling", "canceling"})


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


def end_unsubmitted(lease: BatchLease, reason: str) -> None:
    """End a batch that was never submitted, and release its trials."""
    release_trials(lease)
    lease.end(S.CANCELLED, reason)
