"""Admission control: one short transaction decides how many trials may start, and claims them.

Concurrency, rates, pauses and budgets hold over all workers and machines. They are counted here, under the row locks of
the endpoint, the experiment and the run.

A worker first computes, without a lock, how many trials it could use at each endpoint (`compute_claim_limits`). Its
cycle then locks the counters of one endpoint at a time and claims at most that many (`claim_trials`).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple

from django.conf import settings

from runs_app.bounds import BOUNDS
from runs_app.engine.claim_order import START, ClaimPosition, ClaimPositions
from runs_app.engine.counters import CounterKeys, LockedCounters
from runs_app.engine.fair_share import Demand, share_capacity, share_slots
from runs_app.engine.prepared_sql import fetch_prepared, to_pg_json
from runs_app.engine.run_lifecycle import stop_runs
from runs_app.models import Endpoint, Run


class Claim(NamedTuple):
    """A trial that a worker holds until its lease ends, identified by its fencing token.

    It is a tuple because claims are created while other workers wait for the endpoint. Creating a frozen dataclass
    takes seven times as long.

    `attempts` includes this one. `yields` counts the times that the trial was released without a result.
    """

    trial_id: int
    counter_keys: CounterKeys
    token: uuid.UUID
    item_id: int  # 0 for a call of another program.
    dimension_id: int | None
    sample_idx: int
    attempts: int
    yields: int
    reserved_usd: Decimal
    expected_tokens: int = 0
    batched: bool = False  # A batch holds it: it is not a call in flight, and has no lease of its own.
    without_schema: bool = False  # The provider refused this trial's schema, so its next batch asks without one.

    @property
    def key(self) -> tuple[int, uuid.UUID]:
        """Return the key that identifies this claim among all claims ever made."""
        return self.trial_id, self.token


# Pending trials of each endpoint and its free slots, read without a lock.
COUNT_CLAIMABLE = """
SELECT p.id, sum(r.n_pending), least(p.max_concurrency,
    CASE WHEN p.adaptive THEN coalesce((p.throttle ->> 'limit')::float8, p.max_concurrency) END)::int - p.in_flight
FROM runs_app_run r
JOIN runs_app_condition c ON c.id = r.condition_id
JOIN runs_app_languagemodel m ON m.id = c.model_id
JOIN runs_app_endpoint p ON p.id = m.endpoint_id
WHERE r.status = 'running' AND r.n_pending > 0 AND NOT r.is_batched
    AND p.is_active AND (p.paused_until IS NULL OR p.paused_until <= clock_timestamp())
GROUP BY p.id
"""

# Rows are claimed in the order of the partial index: fresh trials before retries, then by their place in a shuffled
# experiment, then low sample_idx before high, then item, then dimension. SKIP LOCKED keeps a claim from waiting for
# other transactions on these rows. The inner LIMIT is a constant, so the planner walks the index instead of sorting all
# pending rows. The outer LIMIT stops the walk. The walk begins at a claim position (`claim_order`). The ids are
# passed as an array: for a subquery, the planner would expect thousands of rows and read the whole table. A NULL lease
# never ends.
CLAIM = """
WITH requested AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%s::json) w(run bigint, n int, reserve numeric, lease float8,
        attempts int, place int, sample_idx int, item_id bigint)
), picked AS MATERIALIZED (
    SELECT next.id FROM requested CROSS JOIN LATERAL (
        SELECT id FROM (
            SELECT id FROM runs_app_trial
            WHERE run_id = requested.run AND status = 'pending'
                AND (not_before IS NULL OR not_before <= clock_timestamp())
                AND (attempts, place, sample_idx, item_id)
                    >= (requested.attempts, requested.place, requested.sample_idx, requested.item_id)
            ORDER BY attempts, place, sample_idx, item_id, dimension_id LIMIT {most} FOR NO KEY UPDATE SKIP LOCKED
        ) AS claimable LIMIT requested.n
    ) AS next
)
UPDATE runs_app_trial t SET
    status = 'running', attempts = t.attempts + 1, token = %s::uuid, worker_id = %s::bigint,
    reserved_usd = requested.reserve, lease_until = clock_timestamp() + requested.lease * interval '1 second',
    not_before = NULL, claimed_at = clock_timestamp()
FROM requested WHERE t.id = ANY(ARRAY(SELECT id FROM picked)) AND t.run_id = requested.run
RETURNING t.run_id, t.id, t.item_id, t.dimension_id, t.sample_idx, t.attempts, t.yields, t.place
"""
CLAIM_FOR_WORKER = CLAIM.format(most=256)  # For each run. The next cycle claims more.
CLAIM_FOR_BATCH = CLAIM.format(most=BOUNDS["endpoint"]["batch_max_requests"].high)


@dataclass(frozen=True, slots=True)
class WorkerCapacity:
    """The capacity of one worker: the number of calls it may have in flight, and its load by endpoint.

    `in_flight` counts calls in flight. `waiting` counts prefetched claims, `ahead` the prefetched claims that it should
    have. `positions` remember where its claims have arrived in each run.
    """

    concurrency: int
    in_flight: Mapping[int, int] = field(default_factory=dict)
    waiting: Mapping[int, int] = field(default_factory=dict)
    ahead: Mapping[int, int] = field(default_factory=dict)
    positions: ClaimPositions = field(default_factory=ClaimPositions)


@dataclass(frozen=True, slots=True)
class ClaimLimit:
    """A worker's limits at one endpoint: `claims` more trials to claim, and `level` calls in flight afterwards."""

    claims: int
    level: int


def compute_claim_limits(capacity: WorkerCapacity, received: Mapping[int, int]) -> dict[int, ClaimLimit]:
    """Return the claim limits of each endpoint where this worker has calls or may start some.

    `received` counts the answers that the next cycle records, by endpoint. Their slots become free in that cycle.
    """
    claimable = {
        key: max(0, min(pending, free + received.get(key, 0))) for key, pending, free in fetch_prepared(COUNT_CLAIMABLE)
    }
    startable = Counter(claimable) + Counter(capacity.waiting)
    shares = share_capacity(capacity.concurrency, capacity.in_flight, startable)
    return {
        key: ClaimLimit(
            claims=max(0, min(claimable.get(key, 0), shares.get(key, 0) + count_missing_prefetch(capacity, key))),
            level=capacity.in_flight.get(key, 0) + shares.get(key, 0),
        )
        for key in {*startable, *capacity.in_flight}
    }


def count_missing_prefetch(capacity: WorkerCapacity, endpoint_id: int) -> int:
    """Return how many claims to add to the prefetched ones. It is negative if there are too many."""
    return capacity.ahead.get(endpoint_id, 0) - capacity.waiting.get(endpoint_id, 0)


def claim_trials(
    counters: LockedCounters, worker_id: int, limit: int, positions: ClaimPositions | None = None
) -> list[Claim]:
    """Claim at most `limit` trials under counters that the caller has locked."""
    if not counters.endpoint.is_open or counters.endpoint_delta.pause_s:
        return []
    slots = min(limit, counters.limiter.count_free_slots(counters.endpoint.rates, counters.in_flight))
    if slots <= 0:
        return []
    demands, budgets = counters.list_demands(), counters.get_budgets()
    if counters.limiter.measure_outage_s(counters.endpoint.now) > settings.OUTAGE_LIMIT_S:
        _stop_for_outage(counters, [demand.run_id for demand in demands if demand.pending])
        return []
    allotted = share_slots(slots, demands, budgets, counters.limiter.tokens_left)
    shares = {run_id: n for run_id, n in allotted.items() if n}
    claims = claim_shares(counters, shares, worker_id, positions=positions) if shares else []
    if claims:
        expected = sum(claim.expected_tokens for claim in claims)
        counters.endpoint_delta = replace(
            counters.endpoint_delta, limiter=counters.limiter.consume_tokens(len(claims), expected)
        )
    else:
        counters.write_changes()  # First, because `pause_for_budget` reads the stored counters.
        pause_for_budget([demand for demand in demands if cannot_afford_trial(demand, budgets)])
    return claims


def _stop_for_outage(counters: LockedCounters, run_ids: list[int]) -> None:
    """Stop all runs with work at an endpoint that is down for too long. A resumed run tests the endpoint anew."""
    counters.endpoint_delta = replace(counters.endpoint_delta, limiter=counters.limiter.end_outage())
    counters.write_changes()
    endpoint = Endpoint.objects.get(pk=counters.endpoint_id)
    minutes = settings.OUTAGE_LIMIT_S // 60
    stop_runs(
        run_ids,
        f"Endpoint {endpoint} did not answer for more than {minutes:,.0f} minutes: {endpoint.pause_reason}."
        " Its trials kept their attempts. Resume the run when the endpoint answers again.",
    )


def claim_shares(
    counters: LockedCounters,
    shares: Mapping[int, int],
    worker_id: int | None,
    *,
    batch: uuid.UUID | None = None,
    positions: ClaimPositions | None = None,
) -> list[Claim]:
    """Claim these numbers of trials by run, reserve their cost, and count them in the locked counters.

    A batch claims with its own key as the token. Its claims have no worker and no lease, and are not calls in flight.
    A run with too few trials after its position is searched again from its start.
    """
    positions = positions or ClaimPositions()
    token, statement = (uuid.uuid4(), CLAIM_FOR_WORKER) if batch is None else (batch, CLAIM_FOR_BATCH)
    demands = {run_id: counters.runs[run_id].demand for run_id in shares}
    leases = {run_id: demand.lease_s if batch is None else None for run_id, demand in demands.items()}

    def claim(numbers: Mapping[int, int], starts: Mapping[int, ClaimPosition]) -> list[tuple[Any, ...]]:
        requested = [
            {"run": run_id, "n": n, "reserve": demands[run_id].reserve_usd, "lease": leases[run_id]}
            | starts[run_id]._asdict()
            for run_id, n in numbers.items()
        ]
        return fetch_prepared(statement, to_pg_json(requested), token, worker_id)

    starts = {run_id: positions.get(run_id) for run_id in shares}
    rows = claim(shares, starts)
    n_found = Counter(run_id for run_id, *_ in rows)
    missing = {run_id: n - n_found[run_id] for run_id, n in shares.items() if n_found[run_id] < n}
    if missing := {run_id: n for run_id, n in missing.items() if starts[run_id] != START}:
        rows += claim(missing, dict.fromkeys(missing, START))
    positions.note((row[0], ClaimPosition(row[5] - 1, row[7], row[4], row[2])) for row in rows)
    for run_id, n in Counter(run_id for run_id, *_ in rows).items():
        delta = counters.deltas.for_run(counters.get_counter_keys(run_id))
        delta.pending -= n
        delta.running += n
        delta.batched += n if batch else 0
        delta.reserved_usd += n * demands[run_id].reserve_usd
    # Keys and reservations are read once for each run, because other workers wait for the endpoint meanwhile.
    keys = {run_id: counters.get_counter_keys(run_id) for run_id in shares}
    reserved = {
        run_id: (demand.reserve_usd, demand.reserve_tokens, batch is not None) for run_id, demand in demands.items()
    }
    return [
        Claim(trial_id, keys[run_id], token, item_id, dimension_id, sample_idx, attempts, yields, *reserved[run_id])
        for run_id, trial_id, item_id, dimension_id, sample_idx, attempts, yields, _ in rows
    ]


def cannot_afford_trial(demand: Demand, budgets: dict[int, Decimal | None]) -> bool:
    """Return whether the remaining budget is too small for one trial of this run."""
    budget = budgets[demand.experiment_id]
    return budget is not None and demand.startable > 0 and budget < demand.reserve_usd


def pause_for_budget(demands: Sequence[Demand]) -> None:
    """Pause the runs of these demands, unless calls in flight may still release part of their reservation.

    The caller has locked all rows.
    """
    active = Run.objects.filter(experiment__in={demand.experiment_id for demand in demands}, n_running__gt=0)
    waiting = set(active.values_list("experiment_id", flat=True)) if demands else set()
    for demand in demands:
        if demand.experiment_id not in waiting:
            run = Run.objects.select_related("experiment").get(pk=demand.run_id)
            reason = run.describe_shortage()
            Run.objects.filter(pk=run.pk).transition(
                sources=[Run.Status.RUNNING],
                target=Run.Status.PAUSED,
                by="budget",
                reason=reason,
                stop_reason=reason,
                paused_by_budget=True,
            )
