"""The counters of endpoints, experiments and runs: locked in one order, changed in one place.

Every transaction that moves trials takes its locks in this order:

1. the trials that it holds by their token;
2. the counter rows: endpoints, experiments, runs, each kind by ascending key;
3. other trials, which no transaction can hold without the locks of step 2, or which are taken with SKIP LOCKED.

Any other order deadlocks within a second of load.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db import connection

from runs_app.engine.prepared_sql import execute, to_pg_json
from runs_app.engine.rate_limiter import RateLimiterState

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class CounterKeys:
    """The keys of the counter rows of a trial."""

    run_id: int
    experiment_id: int
    endpoint_id: int


@dataclass(slots=True)
class RunDelta:
    """The changes of one transaction to one run's counters."""

    pending: int = 0
    running: int = 0
    batched: int = 0  # The part of the running trials that batches hold.
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
    rejections: int | None = None  # The new number of pauses in a row; None: unchanged.

    def as_row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def move(self, before: str, after: str) -> None:
        """Count a trial whose status changes from `before` to `after`."""
        setattr(self, before, getattr(self, before) - 1)
        setattr(self, after, getattr(self, after) + 1)


# One statement writes all counters, rate limiters and ticks (the curves of the pages), to keep the locks short.
WRITE_CHANGES = """
WITH changes AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%s::json) r(id bigint, n int, batched int, throttle jsonb, answered int,
        overloaded int, curve float8, pause_s float8, pause_reason text)
), endpoints AS (
    UPDATE runs_app_endpoint t SET in_flight = t.in_flight + r.n, in_batches = t.in_batches + r.batched,
        throttle = coalesce(r.throttle, t.throttle),
        paused_until = CASE WHEN r.pause_s IS NULL THEN t.paused_until
            ELSE greatest(t.paused_until, clock_timestamp() + r.pause_s * interval '1 second') END,
        pause_reason = coalesce(r.pause_reason, t.pause_reason)
    FROM changes r WHERE t.id = r.id
), curves AS (
    INSERT INTO runs_app_endpointtick AS t (endpoint_id, at, concurrency, answered, overloaded)
    SELECT id, date_bin('10 seconds', clock_timestamp(), 'epoch'), curve, answered, overloaded
    FROM changes WHERE answered + overloaded > 0
    ON CONFLICT (endpoint_id, at) DO UPDATE SET concurrency = excluded.concurrency,
        answered = t.answered + excluded.answered, overloaded = t.overloaded + excluded.overloaded
), experiments AS (
    UPDATE runs_app_experiment t SET spent_usd = t.spent_usd + r.spent, reserved_usd = t.reserved_usd + r.reserved
    FROM json_to_recordset(%s::json) r(id bigint, spent numeric, reserved numeric) WHERE t.id = r.id
), runs AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%s::json) r(id bigint, pending int, running int, done int, failed int,
        cancelled int, attempts int, permanent int, unpriced int, spent_usd numeric, input_tokens bigint,
        output_tokens bigint, errors jsonb, rejections int)
), ticks AS (
    INSERT INTO runs_app_tick AS t (run_id, at, done, failed, attempts)
    SELECT id, date_bin('10 seconds', clock_timestamp(), 'epoch'), greatest(done, 0), greatest(failed, 0), attempts
    FROM runs WHERE attempts > 0 OR done > 0
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
    rejections = coalesce(r.rejections, t.rejections),
    started_at = CASE WHEN r.running > 0 THEN coalesce(t.started_at, clock_timestamp()) ELSE t.started_at END
FROM runs r WHERE t.id = r.id
"""


@dataclass(frozen=True, slots=True)
class BudgetDelta:
    """The changes of a transaction to an experiment's money, in US dollars."""

    spent_usd: Decimal = ZERO
    reserved_usd: Decimal = ZERO


@dataclass(frozen=True, slots=True)
class EndpointDelta:
    """The changes of a transaction to one endpoint: its rate limiter, and the numbers of calls by outcome.

    If the endpoint asks for a pause, no worker calls it for `pause_s` seconds. `in_flight` changes the number of calls
    in flight that belong to no run.
    """

    limiter: RateLimiterState
    answered: int = 0
    overloaded: int = 0
    pause_s: float | None = None
    pause_reason: str | None = None
    in_flight: int = 0

    def as_row(self) -> dict[str, Any]:
        return {
            "n": self.in_flight,
            "throttle": self.limiter.as_row(),
            "answered": self.answered,
            "overloaded": self.overloaded,
            "curve": self.limiter.limit,
            "pause_s": self.pause_s,
            "pause_reason": self.pause_reason,
        }


class CounterDeltas:
    """The changes of one transaction, gathered trial by trial and written once for each counter row."""

    def __init__(self) -> None:
        self.counter_keys: dict[int, CounterKeys] = {}
        self.by_run: dict[int, RunDelta] = {}
        self.by_endpoint: dict[int, EndpointDelta] = {}
        self.by_experiment: dict[int, BudgetDelta] = {}  # Only for calls that belong to no run.

    def for_run(self, counter_keys: CounterKeys) -> RunDelta:
        """Return the changes so far to the run of these keys, to which the caller adds its own."""
        delta = self.by_run.get(counter_keys.run_id)
        if delta is None:
            delta = self.by_run[counter_keys.run_id] = RunDelta()
            self.counter_keys[counter_keys.run_id] = counter_keys
        return delta

    @property
    def has_changes(self) -> bool:
        return bool(self.by_run or self.by_endpoint)

    def write_changes(self) -> None:
        """Write the changes. The caller has locked the rows in the order above."""
        if self.has_changes:
            execute(WRITE_CHANGES, *self.build_parameters())

    def build_parameters(self) -> list[str]:
        """Return the parameters of WRITE_CHANGES."""
        runs = [{"id": run_id, **delta.as_row()} for run_id, delta in self.by_run.items()]
        return [to_pg_json(rows) for rows in (self._build_endpoint_rows(), self._build_experiment_rows(), runs)]

    def _build_endpoint_rows(self) -> list[dict[str, Any]]:
        rows = {key: {"id": key, "batched": 0, **change.as_row()} for key, change in self.by_endpoint.items()}
        for run_id, delta in self.by_run.items():
            key = self.counter_keys[run_id].endpoint_id
            row = rows.setdefault(key, {"id": key, "n": 0, "batched": 0})
            row["n"] += delta.running - delta.batched
            row["batched"] += delta.batched
        return list(rows.values())

    def _build_experiment_rows(self) -> list[dict[str, Any]]:
        rows: dict[int, dict[str, Any]] = {
            key: {"id": key, "spent": budget.spent_usd, "reserved": budget.reserved_usd}
            for key, budget in self.by_experiment.items()
        }
        for run_id, delta in self.by_run.items():
            if delta.spent_usd or delta.reserved_usd:
                key = self.counter_keys[run_id].experiment_id
                row = rows.setdefault(key, {"id": key, "spent": ZERO, "reserved": ZERO})
                row["spent"] += delta.spent_usd
                row["reserved"] += delta.reserved_usd
        return list(rows.values())


ADD_PENDING = "UPDATE runs_app_run SET n_pending = n_pending + %s WHERE id = %s"


def add_pending(run_id: int, n: int) -> None:
    """Count new trials of a run. The caller has locked its experiment.

    The endpoint needs no lock, because none of these trials is in flight yet.
    """
    execute(ADD_PENDING, n, run_id)


def lock_counter_rows(rows: Collection[CounterKeys], *, endpoints_are_locked: bool = False) -> dict[int, str]:
    """Lock the counter rows of these keys in the order above. Return the statuses by run id."""
    with connection.cursor() as cursor:
        if not endpoints_are_locked:
            _lock(cursor, "runs_app_endpoint", {row.endpoint_id for row in rows})
        _lock(cursor, "runs_app_experiment", {row.experiment_id for row in rows})
        return dict(_lock(cursor, "runs_app_run", {row.run_id for row in rows}, "id, status"))


def _lock(cursor: Any, table: str, keys: Iterable[int], columns: str = "id") -> list[tuple[Any, ...]]:
    cursor.execute(
        f"SELECT {columns} FROM {table} WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE",  # noqa: S608 - our own names
        [sorted(keys)],
    )
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
