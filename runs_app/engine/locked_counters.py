"""The books of one transaction: an endpoint's throttle, its experiments' budgets and its runs; locked, read, settled.

A drain opens the books of one endpoint at a time. Who waits for them waits for whatever is done while they are open: so
answers are written before, and all else in as few round trips as can be.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from runs_app.engine.counters import CounterDeltas, CounterKeys, EndpointDelta, RunDelta
from runs_app.engine.endpoint_state import GATE, EndpointState, endpoint_state
from runs_app.engine.fair_share import Demand
from runs_app.engine.prepared_sql import fetch_pipelined
from runs_app.engine.rate_limiter import RateLimiterState
from runs_app.engine.run_lifecycle import finish_runs
from runs_app.stopping.rules import should_stop_itself

NOTHING = RunDelta()

# Those of results that came in, and those with something to claim at this endpoint (none, where that is NULL).
OF_INTEREST = """(
    SELECT unnest(%s::bigint[]) AS id
    UNION SELECT r.id FROM runs_app_run r
    JOIN runs_app_condition c ON c.id = r.condition_id JOIN runs_app_languagemodel m ON m.id = c.model_id
    WHERE r.status = 'running' AND r.n_pending > 0 AND NOT r.is_batched AND m.endpoint_id = %s::bigint)"""
LOCK_EXPERIMENTS = f"""
SELECT id, max_usd - spent_usd - reserved_usd FROM runs_app_experiment
WHERE id IN (SELECT experiment_id FROM runs_app_run WHERE id IN {OF_INTEREST})
ORDER BY id FOR NO KEY UPDATE
"""  # noqa: S608 - a constant
LOCK_RUNS = f"""
SELECT r.id, r.status, r.status = 'running' AND NOT r.is_batched,
    r.n_attempts - r.attempts_before, r.n_permanent - r.permanent_before, e.stop_failure_rate, e.stop_after_attempts,
    r.experiment_id, r.n_pending, r.n_running, r.max_concurrency, r.reserve_usd, e.lease_s, r.reserve_tokens,
    e.priority
FROM runs_app_run r JOIN runs_app_experiment e ON e.id = r.experiment_id
WHERE r.id IN {OF_INTEREST}
ORDER BY r.id FOR NO KEY UPDATE OF r
"""  # noqa: S608 - a constant


@dataclass(frozen=True, slots=True)
class LockedRun:
    """A run as it was when it was locked; attempts, and those that failed for good, since it was started last."""

    status: str
    may_claim: bool
    attempts: int
    permanent: int
    stop_failure_rate: float
    stop_after_attempts: int
    demand: Demand

    def demand_after(self, delta: RunDelta) -> Demand:
        """What it wants once that is counted: nothing, if that stops it."""
        before = self.demand
        pending = before.pending + delta.pending if self.may_claim and not self.fails_too_much(delta) else 0
        return replace(before, pending=pending, in_flight=before.in_flight + delta.running)

    def may_end_after(self, delta: RunDelta) -> bool:
        """Nothing is left of it once that is counted; or some of it failed for good, and it may have to stop itself."""
        left = self.demand.pending + self.demand.in_flight + delta.pending + delta.running
        return left == 0 or self.permanent + delta.permanent > 0

    def fails_too_much(self, delta: RunDelta) -> bool:
        """Whether it has to stop itself once that is counted."""
        permanent = self.permanent + delta.permanent
        return permanent > 0 and bool(
            should_stop_itself(
                self.attempts + delta.attempts,
                permanent,
                threshold=self.stop_failure_rate,
                minimum=self.stop_after_attempts,
            )
        )


@dataclass(slots=True)
class LockedCounters:
    """Of one endpoint. What changes goes into `deltas`; `settle` writes it, at the end of the transaction at last."""

    endpoint_id: int
    gate: EndpointState
    left_usd: dict[int, Decimal | None]
    runs: dict[int, LockedRun]
    deltas: CounterDeltas = field(default_factory=CounterDeltas)

    @property
    def change(self) -> EndpointDelta:
        """Of the throttle, until now."""
        return self.deltas.by_endpoint.get(self.endpoint_id) or EndpointDelta(self.gate.throttle)

    @change.setter
    def change(self, change: EndpointDelta) -> None:
        self.deltas.by_endpoint[self.endpoint_id] = change

    @property
    def throttle(self) -> RateLimiterState:
        return self.change.throttle

    @property
    def in_flight(self) -> int:
        """At the endpoint, over all workers, after what was counted here."""
        return self.gate.in_flight + sum(delta.running - delta.batched for delta in self.deltas.by_run.values())

    def place(self, run_id: int) -> CounterKeys:
        return CounterKeys(run_id, self.runs[run_id].demand.experiment_id, self.endpoint_id)

    def demands(self) -> list[Demand]:
        """Of the runs that may claim, after what was counted here."""
        return [run.demand_after(self.deltas.by_run.get(key, NOTHING)) for key, run in self.runs.items()]

    def budgets(self) -> dict[int, Decimal | None]:
        """What each experiment's budget still admits, after what was counted here; None where there is no budget."""
        left = dict(self.left_usd)
        for run_id, delta in self.deltas.by_run.items():
            experiment_id = self.deltas.places[run_id].experiment_id
            if (budget := left[experiment_id]) is not None:
                left[experiment_id] = budget - delta.spent_usd - delta.reserved_usd
        return left

    def settle(self) -> None:
        """Write what changed, and end the runs that it ends."""
        self.deltas.settle()
        if ending := {*self._ending(), *self._failing()}:
            finish_runs(ending)
        self.deltas = CounterDeltas()

    def _ending(self) -> list[int]:
        """Those that what is counted here may end."""
        return [key for key, delta in self.deltas.by_run.items() if self.runs[key].may_end_after(delta)]

    def _failing(self) -> list[int]:
        """Those that claim nothing for what was counted before: no result comes to stop them."""
        return [key for key, run in self.runs.items() if run.may_claim and run.fails_too_much(NOTHING)]


def lock_counters(endpoint_id: int, run_ids: Collection[int] = (), *, claiming: bool = False) -> LockedCounters | None:
    """Lock and read them, within a transaction that settles them. None where the endpoint is gone.

    The runs are those of `run_ids`, as far as they are there, and, to claim from, those with work for this endpoint.
    """
    interest = (sorted(run_ids), endpoint_id if claiming else None)
    gates, budgets, runs = fetch_pipelined((GATE, (endpoint_id,)), (LOCK_EXPERIMENTS, interest), (LOCK_RUNS, interest))
    if not gates:
        return None
    left: dict[int, Decimal | None] = dict(budgets)
    locked = (_locked(row) for row in runs)
    return LockedCounters(
        endpoint_id,
        endpoint_state(*gates[0]),
        left,
        {run.demand.run_id: run for run in locked if run.demand.experiment_id in left},
    )


def _locked(row: tuple[Any, ...]) -> LockedRun:
    run_id, status, may_claim, attempts, permanent, rate, minimum, *wish = row
    return LockedRun(status, may_claim, attempts, permanent, rate, minimum, Demand(run_id, *wish))
