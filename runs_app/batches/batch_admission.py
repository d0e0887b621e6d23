"""Batch admission: a batch claims trials as a worker does, under the same locks and budget.

A batch's key is the token of its claims. They have no leases: only their batch ends them, even after a week without a
worker. They count against the budget, but not as calls in flight.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from django.db import connection, transaction
from django.db.models.functions import Now

from runs_app.batches.batch_size import compute_batch_size
from runs_app.engine.admission import cannot_afford_trial, claim_shares, pause_for_budget
from runs_app.engine.broken_runs import stop_broken
from runs_app.engine.counters import CounterKeys
from runs_app.engine.database_recovery import OUTAGES
from runs_app.engine.locked_counters import LockedCounters, lock_counters
from runs_app.models import Endpoint, LanguageModel, ProviderBatch

logger = logging.getLogger("evalsite.drain")

# A round of an adaptive run is one batch. The first decisions of a round may already add cases. They wait for the next
# batch while answers of the run are collected or a point awaits its decision.
RUNS_WITH_WORK = """
SELECT r.id, r.experiment_id, m.endpoint_id FROM runs_app_run r
JOIN runs_app_condition c ON c.id = r.condition_id
JOIN runs_app_languagemodel m ON m.id = c.model_id
JOIN runs_app_endpoint p ON p.id = m.endpoint_id
JOIN runs_app_experiment e ON e.id = r.experiment_id
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
ORDER BY e.priority DESC, r.id
"""


def admit_batches() -> list[int]:
    """Create at most one batch for each run that may have one now. Return their ids."""
    batches = (_admit_or_stop(counter_keys) for counter_keys in list_runs_with_work())
    return [batch.pk for batch in batches if batch]


def _admit_or_stop(counter_keys: CounterKeys) -> ProviderBatch | None:
    """Create a batch for a run. Stop the run with a reason if it cannot be claimed, so that the others continue."""
    try:
        with transaction.atomic():
            counters = lock_counters(counter_keys.endpoint_id, [counter_keys.run_id], batched=True)
            if counters is None or counter_keys.run_id not in counters.runs:
                return None
            endpoint = Endpoint.objects.get(pk=counter_keys.endpoint_id)
            batch = None
            if counters.endpoint.is_open and endpoint.batches.open().count() < endpoint.batch_max_open:
                batch = _claim_batch(counters, counter_keys, endpoint)
            counters.write_changes()  # This stops the run if its failure limit was lowered meanwhile.
            return batch
    except OUTAGES:
        raise
    except Exception as error:
        logger.exception("run %s cannot be batched", counter_keys.run_id)
        stop_broken(counter_keys, "Its trials could not be claimed", error)
        return None


def list_runs_with_work() -> list[CounterKeys]:
    """Return the runs for which a batch may be created now, by descending priority."""
    with connection.cursor() as cursor:
        cursor.execute(RUNS_WITH_WORK, [list(ProviderBatch.OPEN)])
        return [CounterKeys(*row) for row in cursor.fetchall()]


def _claim_batch(counters: LockedCounters, counter_keys: CounterKeys, endpoint: Endpoint) -> ProviderBatch | None:
    most, budgets = endpoint.batch_max_requests, counters.get_budgets()
    (run_demand,) = counters.list_demands()
    demand = replace(run_demand, in_flight=0, max_concurrency=most)
    if cannot_afford_trial(demand, budgets):
        pause_for_budget([demand])
    n = compute_batch_size(demand.pending, most, budgets[counter_keys.experiment_id], demand.reserve_usd)
    batch = ProviderBatch(run_id=counter_keys.run_id, endpoint=endpoint, next_poll_at=Now())
    batch.n_requests = len(claim_shares(counters, {counter_keys.run_id: n}, None, batch=batch.key)) if n else 0
    if not batch.n_requests:
        return None
    batch.reserved_usd = demand.reserve_usd * batch.n_requests
    batch.discount = LanguageModel.objects.get(conditions__runs=counter_keys.run_id).batch_discount
    batch.save()
    return batch
