"""Cancellation of a batch: answered calls are paid and collected, the other trials are given back."""

from __future__ import annotations

from django.db.models.functions import Now

from runs_app.batches.batch_file import Sql
from runs_app.batches.batch_lease import BatchLease, release_trials
from runs_app.batches.batch_size import SHORTEST_LOOK_S, poll_interval_s
from runs_app.batches.protocol import AmbiguousSubmission, BatchApi, Phase
from runs_app.batches.status_poll import batch_age_s
from runs_app.batches.submission import Submission, schedule_search, state_columns
from runs_app.models import ProviderBatch

S = ProviderBatch.Status
ASKED_ALREADY = frozenset({"cancelling", "canceling"})


async def cancel_step(hold: BatchLease, api: BatchApi, sql: Sql, submitting: Submission) -> bool:
    """Take one step: find the batch, ask the provider to stop, wait until it has. Then its answers are collected."""
    if not hold.batch.provider_id:
        return await _cancel_unknown(hold, sql, submitting)
    state = await api.look(hold.batch.provider_id)
    if state.phase == Phase.WORKING and state.word not in ASKED_ALREADY:
        state = await api.cancel(hold.batch.provider_id)
    await sql(hold.save, **state_columns(state))
    if state.phase == Phase.WORKING:
        await sql(hold.wait, min(poll_interval_s(batch_age_s(hold)), 10 * SHORTEST_LOOK_S), tries=0, error="")
        return False
    await sql(hold.move, S.COLLECTING, f"The provider says {state.word}.")
    return True


async def _cancel_unknown(hold: BatchLease, sql: Sql, submitting: Submission) -> bool:
    """Cancel a batch without an id at the provider. If it may have been submitted, search for it first."""
    if hold.batch.gone_by is not None:
        try:
            found = await submitting.search()
        except AmbiguousSubmission as undecided:
            await sql(schedule_search, hold, undecided.candidates)
            return False
        if found is not None:
            await sql(hold.save, submitted_at=Now(), provider_id=found.provider_id, **state_columns(found))
            return True
    await sql(end_unsubmitted, hold, "It was never submitted.")
    return False


def end_unsubmitted(hold: BatchLease, reason: str) -> None:
    """End a batch that was never submitted. Its trials are given back unchanged."""
    release_trials(hold)
    hold.end(S.CANCELLED, reason)
