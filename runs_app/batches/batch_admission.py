"""Admission of trials to batches. A batch claims them instead of a worker, under the same locks and budget.

A batch's key is the token of its claims. They have no lease of their own: only their batch ends them, even after a week
without a worker. They count against the budget, but not as calls in flight.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Now

from runs_app.batches.batch_size import batch_size
from runs_app.engine.admission import cannot_afford_one, pause_for_budget
from runs_app.engine.broken_runs import stop_broken
from runs_app.engine.counters import CounterDeltas, CounterKeys, lock_rows
from runs_app.engine.database_recovery import OUTAGES
from runs_app.engine.fair_share import Demand
from runs_app.engine.run_lifecycle import finish_runs
from runs_app.models import Endpoint, ProviderBatch

logger = logging.getLogger("evalsite.drain")

# A round is one batch. The first decisions of an adaptive run may already ask for more cases. These wait for a batch
# while answers of the run are collected or one of its points awaits a decision.
RUNS_WITH_WORK = """
SELECT r.id, r.experiment_id, m.endpoint_id FROM runs_app_run r
JOIN runs_app_condition c ON c.id = r.condition_id
JOIN runs_app_languagemodel m ON m.id = c.model_id
JOIN runs_app_endpoint p ON p.id = m.endpoint_id
WHERE r.status = 'running' AND r.is_batched AND r.n_pending > 0
    AND p.is_active AND coalesce(p.paused_until <= clock_timestamp(), true) AND p.batch_api <> 'none'
    AND p.batch_max_open > (SELECT count(*) FROM runs_app_providerbatch b
        WHERE b.endpoint_id = p.id AND b.status = ANY(%s))
    AND EXISTS (SELECT FROM runs_app_trial t WHERE t.run_id = r.id AND t.status = 'pending'
        AND (t.not_before IS NULL OR t.not_before <= clock_timestamp()))
    AND NOT EXISTS (SELECT FROM runs_app_point q WHERE q.run_id = r.id AND q.status = 'open' AND (
        EXISTS (SELECT FROM runs_app_providerbatch b WHERE b.run_id = r.id AND b.status = 'collecting')
        OR NOT EXISTS (SELECT FROM unnest(q.items[1:least(q.n_planned, q.n_items)]) AS one (item)
            JOIN runs_app_trial t ON t.run_id = q.run_id AND t.item_id = one.item
                AND t.dimension_id IS NOT DISTINCT FROM q.dimension_id
            WHERE t.status IN ('pending', 'running'))))
ORDER BY r.id
"""

DEMAND = """
SELECT r.id, r.experiment_id, CASE WHEN r.status = 'running' THEN r.n_pending ELSE 0 END, 0, %s, r.reserve_usd,
    e.max_usd - e.spent_usd - e.reserved_usd, m.batch_discount
FROM runs_app_run r JOIN runs_app_experiment e ON e.id = r.experiment_id
JOIN runs_app_condition c ON c.id = r.condition_id JOIN runs_app_languagemodel m ON m.id = c.model_id
WHERE r.id = %s
"""

CLAIM = """
WITH picked AS MATERIALIZED (
    SELECT id FROM runs_app_trial
    WHERE run_id = %s AND status = 'pending' AND (not_before IS NULL OR not_before <= clock_timestamp())
    ORDER BY attempts, sample_idx, item_id, dimension_id LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE runs_app_trial t SET status = 'running', attempts = t.attempts + 1, token = %s, worker_id = NULL,
    reserved_usd = %s, lease_until = NULL, not_before = NULL, claimed_at = clock_timestamp()
FROM picked WHERE t.id = picked.id
"""


def admit_batches() -> list[int]:
    """Make at most one batch of each run that may have one now. Return their ids."""
    made = (_admit_or_stop(place) for place in runs_with_work())
    return [batch.pk for batch in made if batch]


def _admit_or_stop(place: CounterKeys) -> ProviderBatch | None:
    """Make a batch of a run. Stop a run that cannot be claimed with a reason, so that the others make their batches."""
    try:
        return _admit(place)
    except OUTAGES:
        raise
    except Exception as fault:
        logger.exception("no batch can be made of run %s", place.run_id)
        stop_broken(place, "Its trials could not be claimed", fault)
        return None


def runs_with_work() -> list[CounterKeys]:
    """Return the runs of which a batch may be made now, as far as their endpoint allows."""
    with connection.cursor() as cursor:
        cursor.execute(RUNS_WITH_WORK, [list(ProviderBatch.OPEN)])
        return [CounterKeys(*row) for row in cursor.fetchall()]


def _admit(place: CounterKeys) -> ProviderBatch | None:
    with transaction.atomic():
        lock_rows({place})
        finish_runs({place.run_id})  # If a limit on failures was lowered, this stops the run before it submits more.
        endpoint = Endpoint.objects.get(pk=place.endpoint_id)
        if endpoint.batches.open().count() >= endpoint.batch_max_open:
            return None
        demand, left, discount = _demand(place, endpoint.batch_max_requests)
        if cannot_afford_one(demand, {place.experiment_id: left}):
            pause_for_budget([demand])
        n = batch_size(demand.pending, endpoint.batch_max_requests, left, demand.reserve_usd)
        return _claim(place, n, demand.reserve_usd, discount) if n else None


def _demand(place: CounterKeys, most: int) -> tuple[Demand, Decimal | None, Decimal]:
    """Return the run's demand, what is left of its budget, and the share of the price that a batch saves."""
    with connection.cursor() as cursor:
        cursor.execute(DEMAND, [most, place.run_id])
        *demand, left, discount = _only(cursor.fetchall())
    return Demand(*demand), left, discount


def _only(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    (row,) = rows
    return row


def _claim(place: CounterKeys, n: int, each_usd: Decimal, discount: Decimal) -> ProviderBatch | None:
    batch = ProviderBatch(run_id=place.run_id, endpoint_id=place.endpoint_id, discount=discount, next_poll_at=Now())
    with connection.cursor() as cursor:
        cursor.execute(CLAIM, [place.run_id, n, batch.key, each_usd])
        batch.n_requests = int(cursor.rowcount)
    if not batch.n_requests:
        return None
    batch.reserved_usd = each_usd * batch.n_requests
    batch.save()
    deltas = CounterDeltas()
    delta = deltas.at(place)
    delta.pending, delta.running, delta.batched = -batch.n_requests, batch.n_requests, batch.n_requests
    delta.reserved_usd += batch.reserved_usd
    deltas.settle()
    return batch
