"""Cancellation of a batch: answered calls are paid and collected, the other trials are given back."""

from __future__ import annotations

from django.db.models.functions import Now

from runs_app.batches.batch_file import Sql
from runs_app.batches.batch_lease import BatchLease, release_trials
from runs_app.batches.batch_size import MIN_POLL_S, poll_interval_s
from runs_app.batches.protocol import AmbiguousSubmission, BatchApi, Phase
from runs_app.batches.status_poll import batch_age_s
from runs_app.batches.submission import Submission, schedule_search, state_columns
from runs_app.models import ProviderBatch

S = ProviderBatch.Status
CANCELLATION_REQUESTED = frozenset({"cancelling", "canceling"})


async def cancel_step(lease: BatchLease, api: BatchApi, sql: Sql, submission: Submission) -> bool:
    """Take one step: find the batch, ask the provider to stop, wait until it has. Then its answers are collected."""
    if not lease.batch.provider_id:
        return await _cancel_unknown(lease, sql, submission)
    state = await api.retrieve(lease.batch.provider_id)
    if state.phase == Phase.WORKING and state.status_name not in CANCELLATION_REQUESTED:
        state = await api.cancel(lease.batch.provider_id)
    await sql(lease.save, **state_columns(state))
    if state.phase == Phase.WORKING:
        await sql(lease.wait, min(poll_interval_s(batch_age_s(lease)), 10 * MIN_POLL_S), tries=0, error="")
        return False
    await sql(lease.move, S.COLLECTING, f"The provider says {state.status_name}.")
    return True


async def _cancel_unknown(lease: BatchLease, sql: Sql, submission: Submission) -> bool:
    """Cancel a batch without an id at the provider. If it may have been submitted, search for it first."""
    if lease.batch.gone_by is not None:
        try:
            found = await submission.search()
        except AmbiguousSubmission as undecided:
            await sql(schedule_search, lease, undecided.candidates)
            return False
        if found is not None:
            await sql(lease.save, submitted_at=Now(), provider_id=found.provider_id, **state_columns(found))
            return True
    await sql(end_unsubmitted, lease, "It was never submitted.")
    return False


def end_unsubmitted(lease: BatchLease, reason: str) -> None:
    """End a batch that was never submitted. Its trials are given back unchanged."""
    release_trials(lease)
    lease.end(S.CANCELLED, reason)
