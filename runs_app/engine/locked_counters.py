"""The locked counters of one transaction: an endpoint's rate limiter, its experiments' budgets and its runs.

A worker locks the counters of one endpoint at a time. Other workers wait while they are locked. So a worker writes its
answers before it locks them, and then uses as few round trips as possible.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from runs_app.engine.counters import WRITE_CHANGES, CounterDeltas, CounterKeys, EndpointDelta, RunDelta
from runs_app.engine.endpoint_state import LOCK_ENDPOINT, EndpointState, build_endpoint_state
from runs_app.engine.fair_share import Demand
from runs_app.engine.prepared_sql import Statement, fetch_and_commit, fetch_pipelined
from runs_app.engine.rate_limiter import RateLimiterState
from runs_app.engine.run_lifecycle import finish_runs, is_rejected_too_often
from runs_app.stopping.rules import find_stop_reason

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
