"""The response cache: the same request and epoch get the same answer at no cost, over all workers and experiments.

A trial takes a key just before its request is sent. Once the trial is done, the key leads to its answer. Another trial
with the same request finds the key taken, and waits for that answer. It does not wait for a request in a batch, which
may take a day. Waves after the first never read the cache: a copy of an earlier answer is not a new observation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from evalsite.lib.text.hashing import hash_content
from runs_app.engine.prepared_sql import fetch_prepared, to_pg_json
from runs_app.llm.calls import REPLY_FIELDS, CallReply
from runs_app.models import CachedAnswer, Trial

# Keys are inserted in order, because another transaction with the same key waits for this statement. The commit need
# not reach the disk: if a crash loses the key, the request is sent again.
TAKE = """
WITH asked AS MATERIALIZED (SELECT * FROM json_to_recordset(%s::json) r(key text, trial bigint)
), hasty AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)
), taken AS (
    INSERT INTO runs_app_cachedanswer (key, trial_id, created_at)
    SELECT key, trial, clock_timestamp() FROM asked CROSS JOIN hasty ORDER BY key, trial
    ON CONFLICT DO NOTHING RETURNING key, trial_id
)
SELECT asked.key, asked.trial FROM asked LEFT JOIN taken ON taken.key = asked.key AND taken.trial_id = asked.trial
WHERE taken.key IS NULL
"""

# A trial takes a key over if the key's trial waits for a retry, failed or was cancelled.
TAKE_OVER = """
WITH asked AS MATERIALIZED (SELECT * FROM json_to_recordset(%s::json) r(key text, trial bigint)
), held AS MATERIALIZED (
    SELECT asked.key, asked.trial, t.id AS holder, t.status, t.lease_until IS NULL AS in_batch
    FROM asked JOIN runs_app_cachedanswer c ON c.key = asked.key JOIN runs_app_trial t ON t.id = c.trial_id
), free AS MATERIALIZED (
    SELECT c.key FROM runs_app_cachedanswer c JOIN held ON held.key = c.key AND held.holder = c.trial_id
    WHERE held.status NOT IN ('running', 'done') ORDER BY c.key FOR NO KEY UPDATE OF c SKIP LOCKED
), taken AS (
    UPDATE runs_app_cachedanswer c SET trial_id = held.trial, created_at = clock_timestamp()
    FROM held JOIN free ON free.key = held.key WHERE c.key = held.key RETURNING held.trial
)
SELECT trial FROM held
WHERE holder <> trial AND NOT (status = 'running' AND in_batch) AND trial NOT IN (SELECT trial FROM taken)
"""


def build_cache_key(provider: str, request_hash: str, epoch: int) -> str:
    """Return the cache key of a provider, a request and an epoch. Another epoch is another draw."""
    return hash_content([provider, request_hash, epoch])


def fetch_cached(keys: Collection[str]) -> dict[str, CallReply]:
    """Return the cached answers, by key."""
    if not keys:
        return {}
    rows = CachedAnswer.objects.answered().filter(pk__in=keys).select_related("trial")
    return {row.key: build_cached_reply(row.trial) for row in rows}


def take_cache_keys(keys: Mapping[int, str]) -> set[int]:
    """Take the cache keys of these trials. Return the trials that must wait, because another call has their request.

    `keys` maps trials to cache keys. A trial whose answer has just arrived is returned, too. It finds the answer when
    it is claimed again.
    """
    requests = [{"trial": trial, "key": key} for trial, key in keys.items()]
    missing_keys = (
        [{"trial": trial, "key": key} for key, trial in fetch_prepared(TAKE, to_pg_json(requests))] if requests else []
    )
    return {trial for (trial,) in fetch_prepared(TAKE_OVER, to_pg_json(missing_keys))} if missing_keys else set()


def build_cached_reply(trial: Trial) -> CallReply:
    """Return the reply of a done trial, as another trial reuses it."""
    fields = {name: getattr(trial, name) for name in REPLY_FIELDS}
    return CallReply(
        text=trial.answer,
        raw_text=trial.raw_text,
        raw_sha256=trial.raw_sha256,
        reasoning=trial.reasoning,
        refused=trial.refused,
        cost_source="unknown",
        trace_id="",
        **(fields | {"latency_ms": 0}),
    )
