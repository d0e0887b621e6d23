"""A batch at work is looked at now and then, by whichever worker has time."""

from __future__ import annotations

from django.utils import timezone

from runs_app.batch_apis.states import BatchApi, Phase
from runs_app.batching.holding import Hold
from runs_app.batching.packing import Sql
from runs_app.batching.planning import next_look_s
from runs_app.batching.submitting import columns_of
from runs_app.models import ProviderBatch

S = ProviderBatch.Status


async def poll(hold: Hold, api: BatchApi, sql: Sql) -> bool:
    """On to collecting where the provider has ended, in whatever way; else wait."""
    state = await api.look(hold.batch.provider_id)
    await sql(hold.save, **columns_of(state))
    if state.phase == Phase.WORKING:
        await sql(hold.wait, next_look_s(age_s(hold)), tries=0, error="")
        return False
    await sql(hold.move, S.COLLECTING, f"The provider says {state.word}.")
    return True


def age_s(hold: Hold) -> float:
    """Since it was submitted: by this machine's clock, which only sets how often it is looked at."""
    begun = hold.batch.submitted_at or hold.batch.created_at
    return max(0.0, (timezone.now() - begun).total_seconds())
