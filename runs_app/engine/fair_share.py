"""The rules of admission as pure arithmetic: how many trials of each endpoint and run may start."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Demand:
    """The number of trials that one run wants of its endpoint, and its limits.

    Money is in US dollars, leases are in seconds.
    """

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
    def wanted(self) -> int:
        return max(0, min(self.pending, self.max_concurrency - self.in_flight))


def share_slots(
    slots: int, demands: Sequence[Demand], left_usd: dict[int, Decimal | None], left_tokens: float | None = None
) -> dict[int, int]:
    """Return the number of trials that each run may start, by run id.

    `slots` are free at the endpoint. `left_usd` is the rest of each experiment's budget (None: no budget). Experiments
    of the highest priority take what they want first. Among equals, slots are given one by one. Each goes to the
    experiment with the fewest calls in flight, and in it to the run with the fewest. So an experiment with many
    conditions gets no more than one share. Each slot is paid from its experiment's budget before it is given.
    `left_tokens` is the rest of the endpoint's token rate (None: no limit). The last slot may overdraw it, because a
    large call might otherwise never start.
    """
    left, given = dict(left_usd), {demand.run_id: 0 for demand in demands}
    queues = _queues(demands)
    waiting = [(-queue.priority, queue.in_flight, key) for key, queue in queues.items()]
    heapq.heapify(waiting)
    while slots > 0 and waiting and (left_tokens is None or left_tokens > 0):
        order, in_flight, key = heapq.heappop(waiting)
        demand = queues[key].next_within(left[key])
        if demand is None:
            continue
        if (budget := left[key]) is not None:
            left[key] = budget - demand.reserve_usd
        given[demand.run_id] += 1
        slots -= 1
        left_tokens = None if left_tokens is None else left_tokens - demand.reserve_tokens
        heapq.heappush(waiting, (order, in_flight + 1, key))
    return given


class _Queue:
    """The runs of one experiment that want slots, those with the fewest calls in flight first."""

    def __init__(self, demands: Sequence[Demand]) -> None:
        self.priority = demands[0].priority
        self.in_flight = sum(demand.in_flight for demand in demands)
        self._waiting = [(one.in_flight, one.run_id, one.wanted, one) for one in demands if one.wanted > 0]
        heapq.heapify(self._waiting)

    def next_within(self, budget: Decimal | None) -> Demand | None:
        """Return the run that gets the next slot, or None if no run is left. Drop a run that the budget cannot pay."""
        while self._waiting:
            in_flight, run_id, wanted, demand = heapq.heappop(self._waiting)
            if budget is not None and budget < demand.reserve_usd:
                continue
            if wanted > 1:
                heapq.heappush(self._waiting, (in_flight + 1, run_id, wanted - 1, demand))
            return demand
        return None


def _queues(demands: Sequence[Demand]) -> dict[int, _Queue]:
    """Return the queues by experiment."""
    of_experiment: dict[int, list[Demand]] = defaultdict(list)
    for demand in demands:
        of_experiment[demand.experiment_id].append(demand)
    return {key: _Queue(some) for key, some in of_experiment.items()}


def share_capacity(concurrency: int, in_flight: Mapping[int, int], wants: Mapping[int, int]) -> dict[int, int]:
    """Return the number of further calls that a worker may start at each endpoint, without those that get none.

    `in_flight` counts its calls in flight by endpoint, `wants` the calls that each endpoint would take. Slots go round
    the endpoints, those with the fewest calls in flight here first. All endpoints have the same share. Below its share,
    an endpoint gets slots even if calls of other endpoints hold all of them. So a slow endpoint never delays a quick
    one. While slow calls last, more calls than `concurrency` may be in flight, but never twice as many.
    """
    endpoints = {key for key, n in wants.items() if n > 0} | {key for key, n in in_flight.items() if n > 0}
    share = concurrency // len(endpoints) if endpoints else 0
    free = concurrency - sum(in_flight.values())
    given = dict.fromkeys(sorted(wants), 0)
    waiting = [(in_flight.get(key, 0), key) for key in given if wants[key] > 0]
    heapq.heapify(waiting)
    while waiting:
        calls, key = heapq.heappop(waiting)
        if free <= 0 and calls >= share:
            break
        given[key] += 1
        free -= 1
        if given[key] < wants[key]:
            heapq.heappush(waiting, (calls + 1, key))
    return {key: n for key, n in given.items() if n}
