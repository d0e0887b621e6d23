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


async def poll_batch(lease: BatchLease, api: BatchApi, sql: Sql) -> bool:
    """Move the batch to collection if the provider has ended it in any way. Else wait."""
    state = await api.retrieve(lease.batch.provider_id)
    await sql(lease.save, **state_columns(state))
    if state.phase == Phase.WORKING:
        await sql(lease.wait, poll_interval_s(batch_age_s(lease)), tries=0, error="")
        return False
    await sql(lease.move, S.COLLECTING, f"The provider says {state.status_name}.")
    return True


def batch_age_s(lease: BatchLease) -> float:
    """Return the seconds since the submission, by this machine's clock: they only set the time between polls."""
    begun = lease.batch.submitted_at or lease.batch.created_at
    return max(0.0, (timezone.now() - begun).total_seconds())
