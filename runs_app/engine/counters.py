"""The counters of endpoints, experiments and runs: locked in one order, changed in one place.

Every transaction that moves trials takes its locks in this order:

1. the trials that it holds by their token;
2. the counter rows: endpoints, experiments, runs, each kind by ascending key;
3. other trials, which no transaction can hold without the locks of step 2, or which are taken with SKIP LOCKED.

Any other order deadlocks within a second of load.

A worker locks the counters of one endpoint at a time: the endpoint's rate limiter, its experiments' budgets and its
runs. Other workers wait while they are locked. So a worker writes its answers before it locks them, and then uses as
few round trips as possible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from django.db import connection
from django.db.models import F

from runs_app.engine.endpoint_state import LOCK_ENDPOINT, EndpointState, build_endpoint_state
from runs_app.engine.fair_share import Demand
from runs_app.engine.prepared_sql import Statement, execute, fetch_and_commit, fetch_pipelined, to_pg_json
from runs_app.engine.rate_limiter import RateLimiterState
from runs_app.engine.run_lifecycle import finish_runs, is_rejected_too_often
from runs_app.models import Run
from runs_app.stopping.rules import find_stop_reason

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


# The claimed trials of the run `r`, looked up run by run: no index begins with the status. OFFSET 0 keeps the planner
# from merging it into a join, for which it may read the whole table.
RUNNING_TRIALS = "(SELECT * FROM runs_app_trial WHERE run_id = r.id AND status = 'running' OFFSET 0)"


def add_pending(run_id: int, n: int) -> None:
    """Count new trials of a run. The caller has locked its experiment.

    The endpoint needs no lock, because none of these trials is in flight yet.
    """
    Run.objects.filter(pk=run_id).update(n_pending=F("n_pending") + n)


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


NO_CHANGE = RunDelta()

# The runs with new results, and for a claim those with trials to claim at this endpoint.
NAMED_RUNS = "(SELECT unnest(%s::bigint[]))"
RELEVANT_RUNS = """(
    SELECT unnest(%s::bigint[]) AS id
    UNION SELECT r.id FROM runs_app_run r
    JOIN runs_app_condition c ON c.id = r.condition_id JOIN runs_app_languagemodel m ON m.id = c.model_id
    WHERE r.status = 'running' AND r.n_pending > 0 AND NOT r.is_batched AND m.endpoint_id = %s::bigint)"""
LOCK_EXPERIMENTS = """
SELECT id, max_usd - spent_usd - reserved_usd FROM runs_app_experiment
WHERE id IN (SELECT experiment_id FROM runs_app_run WHERE id IN {runs})
ORDER BY id FOR NO KEY UPDATE
"""
LOCK_RUNS = """
SELECT r.id, r.status, r.status = 'running' AND r.is_batched = %s,
    r.n_attempts - r.attempts_before, r.n_permanent - r.permanent_before, e.stop_failure_rate, e.stop_after_attempts,
    r.rejections, r.experiment_id, r.n_pending, r.n_running, r.max_concurrency, r.reserve_usd, e.lease_s,
    r.reserve_tokens, e.priority
FROM runs_app_run r JOIN runs_app_experiment e ON e.id = r.experiment_id
WHERE r.id IN {runs}
ORDER BY r.id FOR NO KEY UPDATE OF r
"""
LOCKS = {
    claiming: tuple(sql.format(runs=RELEVANT_RUNS if claiming else NAMED_RUNS) for sql in (LOCK_EXPERIMENTS, LOCK_RUNS))
    for claiming in (False, True)
}


@dataclass(frozen=True, slots=True)
class LockedRun:
    """A run's columns when it was locked. `attempts` and `permanent` count from its last start."""

    status: str
    may_claim: bool
    attempts: int
    permanent: int
    stop_failure_rate: float
    stop_after_attempts: int
    rejections: int
    demand: Demand

    def get_demand_with(self, delta: RunDelta) -> Demand:
        """Return the run's demand after these changes: nothing pending if they stop the run."""
        before = self.demand
        pending = before.pending + delta.pending if self.may_claim and not self.must_stop_with(delta) else 0
        return replace(before, pending=pending, in_flight=before.in_flight + delta.running)

    def may_end_with(self, delta: RunDelta) -> bool:
        """Return whether these changes may end or stop the run: no trial is left, or one failed permanently."""
        remaining = self.demand.pending + self.demand.in_flight + delta.pending + delta.running
        return remaining == 0 or self.permanent + delta.permanent > 0 or self.must_stop_with(delta)

    def must_stop_with(self, delta: RunDelta) -> bool:
        """Return whether the run must stop itself after these changes."""
        if is_rejected_too_often(self.rejections if delta.rejections is None else delta.rejections):
            return True
        permanent = self.permanent + delta.permanent
        return permanent > 0 and bool(
            find_stop_reason(
                self.attempts + delta.attempts,
                permanent,
                threshold=self.stop_failure_rate,
                minimum=self.stop_after_attempts,
            )
        )


@dataclass(slots=True)
class LockedCounters:
    """The locked counters of one endpoint. Changes go into `deltas`, and `write_changes` writes them."""

    endpoint_id: int
    endpoint: EndpointState
    remaining_usd: dict[int, Decimal | None]  # By experiment; None without a budget.
    runs: dict[int, LockedRun]
    deltas: CounterDeltas = field(default_factory=CounterDeltas)
    read: list[list[tuple[Any, ...]]] = field(default_factory=list)  # The rows that `lock_counters` was asked to read.

    @property
    def endpoint_delta(self) -> EndpointDelta:
        """Return the changes so far to the endpoint's rate limiter."""
        return self.deltas.by_endpoint.get(self.endpoint_id) or EndpointDelta(self.endpoint.limiter)

    @endpoint_delta.setter
    def endpoint_delta(self, delta: EndpointDelta) -> None:
        self.deltas.by_endpoint[self.endpoint_id] = delta

    @property
    def limiter(self) -> RateLimiterState:
        return self.endpoint_delta.limiter

    @property
    def in_flight(self) -> int:
        """Return the calls in flight at the endpoint over all workers, after the changes so far."""
        return self.endpoint.in_flight + sum(delta.running - delta.batched for delta in self.deltas.by_run.values())

    def count_rejections(self, run_id: int) -> int:
        """Return the number of pauses in a row that the run has caused, after the changes so far."""
        delta = self.deltas.by_run.get(run_id, NO_CHANGE)
        return self.runs[run_id].rejections if delta.rejections is None else delta.rejections

    def get_counter_keys(self, run_id: int) -> CounterKeys:
        return CounterKeys(run_id, self.runs[run_id].demand.experiment_id, self.endpoint_id)

    def list_demands(self) -> list[Demand]:
        """Return the demands of the runs that may claim, after the changes so far."""
        return [run.get_demand_with(self.deltas.by_run.get(key, NO_CHANGE)) for key, run in self.runs.items()]

    def get_budgets(self) -> dict[int, Decimal | None]:
        """Return each experiment's remaining budget after the changes so far; None without a budget."""
        budgets = dict(self.remaining_usd)
        for run_id, delta in self.deltas.by_run.items():
            experiment_id = self.deltas.counter_keys[run_id].experiment_id
            if (budget := budgets[experiment_id]) is not None:
                budgets[experiment_id] = budget - delta.spent_usd - delta.reserved_usd
        return budgets

    def write_changes(self) -> None:
        """Write the changes, and end the runs that they finish."""
        self.deltas.write_changes()
        if run_ids := {*self._list_ending_runs(), *self._list_failing_runs()}:
            finish_runs(run_ids)
        self.deltas = CounterDeltas()

    def write_and_commit(self, *statements: Statement) -> list[list[tuple[Any, ...]]]:
        """Execute the statements, write the changes and commit, in one round trip. Return the rows of the statements.

        With an early release of the locks, it also waits for the disk.

        Nothing else may follow in this transaction. While it holds its locks, all workers of the endpoint wait.
        """
        if self._list_ending_runs() or self._list_failing_runs():
            rows = fetch_pipelined(*statements) if statements else []
            self.write_changes()
            return rows
        changes = [(WRITE_CHANGES, self.deltas.build_parameters())] if self.deltas.has_changes else []
        rows = fetch_and_commit(*statements, *changes)
        self.deltas = CounterDeltas()
        return rows[: len(statements)]

    def _list_ending_runs(self) -> list[int]:
        """Return ids of runs that these changes may have finished."""
        return [key for key, delta in self.deltas.by_run.items() if self.runs[key].may_end_with(delta)]

    def _list_failing_runs(self) -> list[int]:
        """Return ids of runs that earlier failures stop. They claim nothing, so no result of theirs would stop them."""
        return [key for key, run in self.runs.items() if run.may_claim and run.must_stop_with(NO_CHANGE)]


def lock_counters(
    endpoint_id: int,
    run_ids: Collection[int] = (),
    *,
    claiming: bool = False,
    batched: bool = False,
    read: Sequence[Statement] = (),
) -> LockedCounters | None:
    """Lock and read the counters. The caller's transaction must call `write_changes` before it ends.

    Return None if the endpoint no longer exists. The runs are those of `run_ids` that still exist. With `claiming`, the
    runs with work for this endpoint are added. Runs that send batches may claim if `batched` is true, the others if it
    is false. The statements of `read` are executed in the same round trip, before the locks.
    """
    lock_experiments, lock_runs = LOCKS[claiming]
    relevant_to = (sorted(run_ids), endpoint_id) if claiming else (sorted(run_ids),)
    *rows_read, endpoint_rows, budget_rows, run_rows = fetch_pipelined(
        *read,
        (LOCK_ENDPOINT, (endpoint_id,)),
        (lock_experiments, relevant_to),
        (lock_runs, (batched, *relevant_to)),
    )
    if not endpoint_rows:
        return None
    budgets: dict[int, Decimal | None] = dict(budget_rows)
    runs = (_build_run(row) for row in run_rows)
    return LockedCounters(
        endpoint_id,
        build_endpoint_state(*endpoint_rows[0]),
        budgets,
        {run.demand.run_id: run for run in runs if run.demand.experiment_id in budgets},
        read=rows_read,
    )


def _build_run(row: tuple[Any, ...]) -> LockedRun:
    run_id, status, may_claim, attempts, permanent, rate, minimum, rejections, *demand = row
    return LockedRun(status, may_claim, attempts, permanent, rate, minimum, rejections, Demand(run_id, *demand))
