"""Admission is the claim: one short transaction decides how many trials may start, and takes them.

Concurrency, rates, pause and budget hold over all workers and machines because they are counted here, under the row
locks of the endpoint, the experiment and the run.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db import connection, transaction

from runs_app.engine.allotting import Demand, allot
from runs_app.engine.settling import Deltas, Place
from runs_app.engine.throttles import Change, gates, write
from runs_app.engine.throttling import free_slots, taken
from runs_app.models import Run


@dataclass(frozen=True, slots=True)
class Claim:
    """A trial that this worker holds until its lease ends, by its token."""

    trial_id: int
    place: Place
    token: uuid.UUID
    item_id: int
    dimension_id: int | None
    sample_idx: int
    attempts: int
    yields: int
    reserved_usd: Decimal
    expected_tokens: int = 0
    batched: bool = False  # Held by a batch: not a call in flight, and without a lease.

    @property
    def key(self) -> tuple[int, uuid.UUID]:
        """Of this claim among all there ever were."""
        return self.trial_id, self.token


ENDPOINTS_WITH_WORK = """
SELECT m.endpoint_id, sum(r.n_pending)
FROM runs_app_run r
JOIN runs_app_condition c ON c.id = r.condition_id
JOIN runs_app_languagemodel m ON m.id = c.model_id
WHERE r.status = 'running' AND r.n_pending > 0 AND NOT r.is_batched
GROUP BY m.endpoint_id ORDER BY random()
"""

LOCK_EXPERIMENTS = """
SELECT id, max_usd - spent_usd - reserved_usd FROM runs_app_experiment
WHERE id IN (
    SELECT r.experiment_id FROM runs_app_run r
    JOIN runs_app_condition c ON c.id = r.condition_id JOIN runs_app_languagemodel m ON m.id = c.model_id
    WHERE r.status = 'running' AND r.n_pending > 0 AND NOT r.is_batched AND m.endpoint_id = %s)
ORDER BY id FOR NO KEY UPDATE
"""

LOCK_RUNS = """
SELECT r.id, r.experiment_id, r.n_pending, r.n_running, r.max_concurrency, r.reserve_usd, e.lease_s,
    r.reserve_tokens
FROM runs_app_run r
JOIN runs_app_experiment e ON e.id = r.experiment_id
JOIN runs_app_condition c ON c.id = r.condition_id
JOIN runs_app_languagemodel m ON m.id = c.model_id
WHERE r.status = 'running' AND r.n_pending > 0 AND NOT r.is_batched AND m.endpoint_id = %s AND r.experiment_id = ANY(%s)
ORDER BY r.id FOR NO KEY UPDATE OF r
"""

# Fresh trials before retries, low sample_idx before high, then item, then dimension: the order of the partial index.
# SKIP LOCKED is what keeps a claim from waiting for whoever else touches these rows. A part for each run, each with
# its own LIMIT as a constant: with a LIMIT that the planner cannot see, it sorts all that is pending (fifty times
# slower at 100,000 trials).
PICK = """
SELECT * FROM (
    SELECT id, %s::numeric AS reserve, %s::float8 AS lease FROM runs_app_trial
    WHERE run_id = %s AND status = 'pending' AND (not_before IS NULL OR not_before <= clock_timestamp())
    ORDER BY attempts, sample_idx, item_id, dimension_id LIMIT %s FOR UPDATE SKIP LOCKED) part
"""
CLAIM = """
WITH picked AS MATERIALIZED ({picks})
UPDATE runs_app_trial t SET
    status = 'running', attempts = t.attempts + 1, token = %s, worker_id = %s, reserved_usd = picked.reserve,
    lease_until = clock_timestamp() + picked.lease * interval '1 second', not_before = NULL,
    claimed_at = clock_timestamp()
FROM picked WHERE t.id = picked.id
RETURNING t.id, t.run_id, t.item_id, t.dimension_id, t.sample_idx, t.attempts, t.yields, t.reserved_usd
"""


def admit(worker_id: int, room: int) -> list[Claim]:
    """Claim at most `room` trials, over all endpoints that have work, each endpoint in a transaction of its own."""
    claims: list[Claim] = []
    for endpoint_id in _endpoints_with_work():
        if len(claims) >= room:
            break
        claims += _admit_at(endpoint_id, worker_id, room - len(claims))
    return claims


def _endpoints_with_work() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(ENDPOINTS_WITH_WORK)
        return [row[0] for row in cursor.fetchall()]


def _admit_at(endpoint_id: int, worker_id: int, room: int) -> list[Claim]:
    with transaction.atomic():
        gate = gates([endpoint_id]).get(endpoint_id)
        slots = min(room, free_slots(gate.throttle, gate.rates, gate.in_flight)) if gate and gate.is_open else 0
        if gate is None or slots <= 0:
            return []
        left = _lock_experiments(endpoint_id)
        demands = _lock_runs(endpoint_id, list(left))
        shares = {run_id: n for run_id, n in allot(slots, demands, left, gate.throttle.tokens).items() if n}
        claims = _claim(endpoint_id, worker_id, demands, shares) if shares else []
        if claims:
            expected = sum(claim.expected_tokens for claim in claims)
            write({endpoint_id: Change(taken(gate.throttle, len(claims), expected))})
        else:
            pause_for_budget([demand for demand in demands if is_short(demand, left)])
    return claims


def _lock_experiments(endpoint_id: int) -> dict[int, Decimal | None]:
    """What each budget still admits; None where there is no budget."""
    with connection.cursor() as cursor:
        cursor.execute(LOCK_EXPERIMENTS, [endpoint_id])
        return dict(cursor.fetchall())


def _lock_runs(endpoint_id: int, experiments: list[int]) -> list[Demand]:
    with connection.cursor() as cursor:
        cursor.execute(LOCK_RUNS, [endpoint_id, experiments])
        return [Demand(*row) for row in cursor.fetchall()]


def _claim(endpoint_id: int, worker_id: int, demands: Sequence[Demand], shares: dict[int, int]) -> list[Claim]:
    token = uuid.uuid4()
    places = {demand.run_id: Place(demand.run_id, demand.experiment_id, endpoint_id) for demand in demands}
    tokens = {demand.run_id: demand.reserve_tokens for demand in demands}
    picking = [one for one in demands if one.run_id in shares]
    sql = CLAIM.format(picks=" UNION ALL ".join([PICK] * len(picking)))
    picks = [value for one in picking for value in (one.reserve_usd, one.lease_s, one.run_id, shares[one.run_id])]
    with connection.cursor() as cursor:
        cursor.execute(sql, [*picks, token, worker_id])
        claims = [_claim_from(row, places, tokens, token) for row in cursor.fetchall()]
    deltas = Deltas()
    for claim in claims:
        delta = deltas.at(claim.place)
        delta.move("pending", "running")
        delta.reserved_usd += claim.reserved_usd
    deltas.settle()
    return claims


def _claim_from(row: tuple[Any, ...], places: dict[int, Place], tokens: dict[int, int], token: uuid.UUID) -> Claim:
    trial_id, run_id, item_id, dimension_id, sample_idx, attempts, yields, reserved = row
    return Claim(
        trial_id,
        places[run_id],
        token,
        item_id,
        dimension_id,
        sample_idx,
        attempts,
        yields,
        reserved,
        expected_tokens=tokens[run_id],
    )


def is_short(demand: Demand, left: dict[int, Decimal | None]) -> bool:
    """What is left of the budget does not pay one trial."""
    budget = left[demand.experiment_id]
    return budget is not None and demand.wanted > 0 and budget < demand.reserve_usd


def pause_for_budget(short: Sequence[Demand]) -> None:
    """Unless something is in flight, of whose reservation some may come back. All is locked."""
    busy = Run.objects.filter(experiment__in={demand.experiment_id for demand in short}, n_running__gt=0)
    waiting = set(busy.values_list("experiment_id", flat=True)) if short else set()
    for demand in short:
        if demand.experiment_id not in waiting:
            run = Run.objects.select_related("experiment").get(pk=demand.run_id)
            reason = _why_short(run)
            Run.objects.filter(pk=run.pk).transition(
                sources=[Run.Status.RUNNING], target=Run.Status.PAUSED, by="budget", reason=reason, stop_reason=reason
            )


def _why_short(run: Run) -> str:
    experiment = run.experiment
    needs = run.reserve_usd * run.n_pending
    kept = f" ${experiment.reserved_usd:.4f} is kept for calls of unknown cost," if experiment.reserved_usd else ""
    return (
        f"The budget of ${experiment.max_usd} is reached: ${experiment.spent_usd:.4f} is spent,{kept} and"
        f" {run.n_pending} trials left may need up to ${needs:.4f}."
    )
