"""The poll of a batch at work, by any worker that is free."""

from __future__ import annotations

from django.utils import timezone

from runs_app.batches.batch_file import Sql
from runs_app.batches.batch_lease import BatchLease
from runs_app.batches.batch_size import poll_interval_s
from runs_app.batches.protocol import BatchApi, Phase
from runs_app.batches.submission import state_columns
from runs_app.models import ProviderBatch

S = ProviderBatch.Status


async def poll_batch(hold: BatchLease, api: BatchApi, sql: Sql) -> bool:
    """Move the batch to collection if the provider has ended it in any way. Else wait."""
    state = await api.look(hold.batch.provider_id)
    await sql(hold.save, **state_columns(state))
    if state.phase == Phase.WORKING:
        await sql(hold.wait, poll_interval_s(batch_age_s(hold)), tries=0, error="")
        return False
    await sql(hold.move, S.COLLECTING, f"The provider says {state.word}.")
    return True


def batch_age_s(hold: BatchLease) -> float:
    """Return the seconds since the submission, by this machine's clock: they only set the time between polls."""
    begun = hold.batch.submitted_at or hold.batch.created_at
    return max(0.0, (timezone.now() - begun).total_seconds())
