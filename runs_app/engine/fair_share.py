"""Fair shares: how many trials of each endpoint and run may start. Pure arithmetic."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Demand:
    """A run's demand for slots at its endpoint, and its limits. Money is in US dollars, leases are in seconds."""

    run_id: int
    experiment_id: int
    pending: int
    in_flight: int
    max_concurrency: int
    reserve_usd: Decimal = Decimal(0)
    lease_s: float = 120.0
    reserve_tokens: int = 0
    priority: int = 0

    @property
    def startable(self) -> int:
        """Return the number of trials that the run may start, by its own limit and its pending trials."""
        return max(0, min(self.pending, self.max_concurrency - self.in_flight))


def share_slots(
    slots: int, demands: Sequence[Demand], budgets: dict[int, Decimal | None], tokens: float | None = None
) -> dict[int, int]:
    """Return the number of trials that each run may start, by run id.

    `slots` are the endpoint's free slots. `budgets` are the remaining budgets by experiment (None: no budget).
    Experiments of the highest priority come first. Among equals, slots are assigned one by one: each goes to the
    experiment with the fewest calls in flight, and within it to the run with the fewest. So an experiment with many
    conditions gets only one share. Its budget must cover each slot.

    `tokens` is the rest of the endpoint's token rate (None: no limit). The last slot may overdraw it, because a large
    call might otherwise never start.
    """
    remaining, shares = dict(budgets), {demand.run_id: 0 for demand in demands}
    queues = _build_queues(demands)
    waiting = [(-queue.priority, queue.in_flight, key) for key, queue in queues.items()]
    heapq.heapify(waiting)
    while slots > 0 and waiting and (tokens is None or tokens > 0):
        order, in_flight, key = heapq.heappop(waiting)
        demand = queues[key].pop_affordable(remaining[key])
        if demand is None:
            continue
        if (budget := remaining[key]) is not None:
            remaining[key] = budget - demand.reserve_usd
        shares[demand.run_id] += 1
        slots -= 1
        tokens = None if tokens is None else tokens - demand.reserve_tokens
        heapq.heappush(waiting, (order, in_flight + 1, key))
    return shares


class _Queue:
    """A queue of one experiment's runs that want slots, those with the fewest calls in flight first."""

    def __init__(self, demands: Sequence[Demand]) -> None:
        self.priority = demands[0].priority
        self.in_flight = sum(demand.in_flight for demand in demands)
        self._waiting = [
            (demand.in_flight, demand.run_id, demand.startable, demand) for demand in demands if demand.startable > 0
        ]
        heapq.heapify(self._waiting)

    def pop_affordable(self, budget: Decimal | None) -> Demand | None:
        """Return the run that gets the next slot, or None. Drop runs that the budget cannot cover."""
        while self._waiting:
            in_flight, run_id, n_startable, demand = heapq.heappop(self._waiting)
            if budget is not None and budget < demand.reserve_usd:
                continue
            if n_startable > 1:
                heapq.heappush(self._waiting, (in_flight + 1, run_id, n_startable - 1, demand))
            return demand
        return None


def _build_queues(demands: Sequence[Demand]) -> dict[int, _Queue]:
    by_experiment: dict[int, list[Demand]] = defaultdict(list)
    for demand in demands:
        by_experiment[demand.experiment_id].append(demand)
    return {key: _Queue(members) for key, members in by_experiment.items()}


def share_capacity(concurrency: int, in_flight: Mapping[int, int], startable: Mapping[int, int]) -> dict[int, int]:
    """Return the number of calls that a worker may start, by endpoint. Endpoints without a slot are left out.

    `in_flight` counts the worker's calls in flight by endpoint, `startable` the calls that it could start there. Slots
    are assigned one by one: each goes to the endpoint with the fewest calls in flight here. All endpoints have the same
    share. Below its share, an endpoint gets slots even if calls of other endpoints hold all of them, so a slow endpoint
    never delays a quick one. During slow calls, more than `concurrency` calls may be in flight, but never twice as
    many.
    """
    endpoints = {key for key, n in startable.items() if n > 0} | {key for key, n in in_flight.items() if n > 0}
    share = concurrency // len(endpoints) if endpoints else 0
    free = concurrency - sum(in_flight.values())
    allotted = dict.fromkeys(sorted(startable), 0)
    waiting = [(in_flight.get(key, 0), key) for key in allotted if startable[key] > 0]
    heapq.heapify(waiting)
    while waiting:
        calls, key = heapq.heappop(waiting)
        if free <= 0 and calls >= share:
            break
        allotted[key] += 1
        free -= 1
        if allotted[key] < startable[key]:
            heapq.heappush(waiting, (calls + 1, key))
    return {key: n for key, n in allotted.items() if n}
