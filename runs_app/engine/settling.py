"""The counters of endpoints, experiments and runs: locked in one order, changed in one place.

Every transaction that moves work units locks what it counts in the same order (endpoints, experiments, runs, then the
units), each kind by ascending key. Two transactions in another order would deadlock within a second of load.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db import connection

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a work unit is counted."""

    run_id: int
    experiment_id: int
    endpoint_id: int


@dataclass(slots=True)
class RunDelta:
    """What one transaction changes of one run's counters."""

    pending: int = 0
    running: int = 0
    batched: int = 0  # Of the running ones, those that batches hold
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    attempts: int = 0
    permanent: int = 0
    unpriced: int = 0
    spent_usd: Decimal = ZERO
    reserved_usd: Decimal = ZERO
    input_tokens: int = 0
    output_tokens: int = 0
    errors: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def move(self, before: str, after: str) -> None:
        setattr(self, before, getattr(self, before) - 1)
        setattr(self, after, getattr(self, after) + 1)


# One statement settles all: four round trips less for each batch of results, and as many for each claim.
SETTLE = """
WITH endpoints AS (
    UPDATE runs_app_endpoint t SET in_flight = t.in_flight + r.n, in_batches = t.in_batches + r.batched
    FROM json_to_recordset(%s) r(id bigint, n int, batched int) WHERE t.id = r.id
), experiments AS (
    UPDATE runs_app_experiment t SET spent_usd = t.spent_usd + r.spent, reserved_usd = t.reserved_usd + r.reserved
    FROM json_to_recordset(%s) r(id bigint, spent numeric, reserved numeric) WHERE t.id = r.id
), ticks AS (
    INSERT INTO runs_app_tick AS t (run_id, at, done, failed, attempts)
    SELECT id, date_bin('10 seconds', clock_timestamp(), 'epoch'), greatest(done, 0), greatest(failed, 0), attempts
    FROM json_to_recordset(%s) r(id bigint, done int, failed int, attempts int)
    WHERE attempts > 0 OR done > 0
    ON CONFLICT (run_id, at) DO UPDATE SET done = t.done + excluded.done,
        failed = t.failed + excluded.failed, attempts = t.attempts + excluded.attempts
)
UPDATE runs_app_run t SET
    n_pending = t.n_pending + r.pending, n_running = t.n_running + r.running, n_done = t.n_done + r.done,
    n_failed = t.n_failed + r.failed, n_cancelled = t.n_cancelled + r.cancelled,
    n_attempts = t.n_attempts + r.attempts, n_permanent = t.n_permanent + r.permanent,
    n_unpriced = t.n_unpriced + r.unpriced, spent_usd = t.spent_usd + r.spent_usd,
    input_tokens = t.input_tokens + r.input_tokens, output_tokens = t.output_tokens + r.output_tokens,
    errors = CASE WHEN r.errors = '{}' THEN t.errors ELSE t.errors || (
        SELECT jsonb_object_agg(key, value::int + coalesce((t.errors ->> key)::int, 0))
        FROM jsonb_each_text(r.errors)) END,
    started_at = CASE WHEN r.running > 0 THEN coalesce(t.started_at, clock_timestamp()) ELSE t.started_at END
FROM json_to_recordset(%s) r(id bigint, pending int, running int, done int, failed int, cancelled int,
    attempts int, permanent int, unpriced int, spent_usd numeric, input_tokens bigint, output_tokens bigint,
    errors jsonb)
WHERE t.id = r.id
"""


class Deltas:
    """The changes of one transaction, gathered row by row and written once a counted row."""

    def __init__(self) -> None:
        self.by_place: dict[Place, RunDelta] = {}

    def at(self, place: Place) -> RunDelta:
        return self.by_place.setdefault(place, RunDelta())

    def settle(self) -> None:
        """Write them. The rows are locked already, in the one order."""
        if not self.by_place:
            return
        runs = [_run_row(place.run_id, delta) for place, delta in self.by_place.items()]
        rows = (self._of_endpoints(), self._of_experiments(), runs, runs)
        with connection.cursor() as cursor:
            cursor.execute(SETTLE, [json.dumps(some) for some in rows])

    def _of_endpoints(self) -> list[dict[str, Any]]:
        in_flight: dict[int, int] = defaultdict(int)
        batched: dict[int, int] = defaultdict(int)
        for place, delta in self.by_place.items():
            in_flight[place.endpoint_id] += delta.running - delta.batched
            batched[place.endpoint_id] += delta.batched
        moved = [key for key in in_flight if in_flight[key] or batched[key]]
        return [{"id": key, "n": in_flight[key], "batched": batched[key]} for key in moved]

    def _of_experiments(self) -> list[dict[str, Any]]:
        spent: dict[int, Decimal] = defaultdict(Decimal)
        reserved: dict[int, Decimal] = defaultdict(Decimal)
        for place, delta in self.by_place.items():
            spent[place.experiment_id] += delta.spent_usd
            reserved[place.experiment_id] += delta.reserved_usd
        moved = [key for key in spent if spent[key] or reserved[key]]
        return [{"id": key, "spent": str(spent[key]), "reserved": str(reserved[key])} for key in moved]


def lock(places: Collection[Place], *, endpoints_are_locked: bool = False) -> dict[int, str]:
    """Lock what these places are counted in, in the one order. Returns each run's status, by run id."""
    with connection.cursor() as cursor:
        if not endpoints_are_locked:
            _lock(cursor, "runs_app_endpoint", {place.endpoint_id for place in places})
        _lock(cursor, "runs_app_experiment", {place.experiment_id for place in places})
        return dict(_lock(cursor, "runs_app_run", {place.run_id for place in places}, "id, status"))


def _lock(cursor: Any, table: str, keys: Iterable[int], columns: str = "id") -> list[tuple[Any, ...]]:
    cursor.execute(
        f"SELECT {columns} FROM {table} WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE",  # noqa: S608 - our own names
        [sorted(keys)],
    )
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _run_row(run_id: int, delta: RunDelta) -> dict[str, Any]:
    return {
        "id": run_id,
        "pending": delta.pending,
        "running": delta.running,
        "done": delta.done,
        "failed": delta.failed,
        "cancelled": delta.cancelled,
        "attempts": delta.attempts,
        "permanent": delta.permanent,
        "unpriced": delta.unpriced,
        "spent_usd": str(delta.spent_usd),
        "input_tokens": delta.input_tokens,
        "output_tokens": delta.output_tokens,
        "errors": delta.errors,
    }
