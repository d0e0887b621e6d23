"""The poll of a submitted batch, by any worker."""

from __future__ import annotations

from django.utils import timezone

from runs_app.batches.batch_file import Sql
from runs_app.batches.batch_lease import BatchLease
from runs_app.batches.batch_size import compute_poll_interval_s
from runs_app.batches.protocol import BatchApi, Phase
from runs_app.batches.submission import build_state_columns
from runs_app.models import ProviderBatch

S = ProviderBatch.Status


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
