"""The response cache: the same request and epoch get the same answer, at no cost, over all workers and experiments.

Waves after the first never read it: an observation that replays the one before observes nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from evalsite.lib.hashing import content_hash
from runs_app.models import CachedAnswer, Trial
from runs_app.providers.calls import CallReply


def cache_key(provider: str, request_hash: str, epoch: int) -> str:
    """Who was asked, what, and which repetition: another epoch is another draw."""
    return content_hash([provider, request_hash, epoch])


def remembered(keys: Collection[str]) -> dict[str, CallReply]:
    """The answers there are, by key."""
    if not keys:
        return {}
    rows = CachedAnswer.objects.filter(pk__in=keys).select_related("trial")
    return {row.key: _reply_of(row.trial) for row in rows}


def _reply_of(trial: Trial) -> CallReply:
    return CallReply(
        text=trial.answer,
        raw_text=trial.raw_response or "",
        reasoning=trial.reasoning,
        finish_reason=trial.finish_reason,
        refused=trial.refused,
        response_id=trial.response_id,
        served_model=trial.served_model,
        served_provider=trial.served_provider,
        input_tokens=trial.input_tokens,
        output_tokens=trial.output_tokens,
        reasoning_tokens=trial.reasoning_tokens,
        cache_read_tokens=trial.cache_read_tokens,
        cache_write_tokens=trial.cache_write_tokens,
        cost_usd=trial.cost_usd,
        cost_source="unknown",
        latency_ms=0,
        trace_id="",
    )
