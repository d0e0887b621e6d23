"""A batch is cancelled: what was answered is paid and collected, what was not goes back."""

from __future__ import annotations

from django.db.models.functions import Now

from runs_app.batch_apis.states import BatchApi, Phase, Undecided
from runs_app.batching.holding import Hold, give_back
from runs_app.batching.packing import Sql
from runs_app.batching.planning import SHORTEST_LOOK_S, next_look_s
from runs_app.batching.polling import age_s
from runs_app.batching.submitting import Submitting, columns_of, look_again
from runs_app.models import ProviderBatch

S = ProviderBatch.Status
ASKED_ALREADY = frozenset({"cancelling", "canceling"})


async def cancel(hold: Hold, api: BatchApi, sql: Sql, submitting: Submitting) -> bool:
    """One step: find it, ask the provider to stop, wait until it has; then what was answered is collected."""
    if not hold.batch.provider_id:
        return await _cancel_unknown(hold, sql, submitting)
    state = await api.look(hold.batch.provider_id)
    if state.phase == Phase.WORKING and state.word not in ASKED_ALREADY:
        state = await api.cancel(hold.batch.provider_id)
    await sql(hold.save, **columns_of(state))
    if state.phase == Phase.WORKING:
        await sql(hold.wait, min(next_look_s(age_s(hold)), 10 * SHORTEST_LOOK_S), tries=0, error="")
        return False
    await sql(hold.move, S.COLLECTING, f"The provider says {state.word}.")
    return True


async def _cancel_unknown(hold: Hold, sql: Sql, submitting: Submitting) -> bool:
    """It was never submitted, or it may have been: then it is found first."""
    if hold.batch.gone_by is not None:
        try:
            found = await submitting.search()
        except Undecided as undecided:
            await sql(look_again, hold, undecided.candidates)
            return False
        if found is not None:
            await sql(hold.save, submitted_at=Now(), provider_id=found.provider_id, **columns_of(found))
            return True
    await sql(end_unsubmitted, hold, "It was never submitted.")
    return False


def end_unsubmitted(hold: Hold, reason: str) -> None:
    """Its trials go back as they came."""
    give_back(hold)
    hold.end(S.CANCELLED, reason)
