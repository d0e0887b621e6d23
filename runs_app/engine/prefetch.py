"""Prefetch: claims ahead of time, so that a call starts when another one ends, and not a cycle later.

A cycle takes tens of milliseconds. If slots waited for cycles, a provider that answers as quickly would be idle half of
the time. So a worker also claims the trials that it will start before its next cycle is over. It derives their number
from the rate of recent answers, so it prefetches nothing if calls take seconds. A prefetched trial has two costs:
another worker could have started it, and it starts even if its run was paused a moment ago.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from runs_app.engine.admission import Claim
from runs_app.engine.jobs import Job

LOOKAHEAD_S = 0.1  # Twice the time of a cycle and of the gathering before it, to allow for slow ones.
AVERAGING_S = 0.5  # The time over which the rate of answers is averaged.
STALE_S = 1.0  # Jobs that wait longer are released: the estimated rate was too high.


@dataclass(slots=True)
class PrefetchQueue:
    """A queue of jobs that wait for a slot, by endpoint, oldest first, with the rate of answers of each endpoint.

    It belongs to one event loop.
    """

    clock: Callable[[], float] = time.monotonic
    _waiting: dict[int, deque[tuple[float, Job]]] = field(default_factory=dict)
    _levels: Counter[int] = field(default_factory=Counter)
    _answered: Counter[int] = field(default_factory=Counter)
    _rates: dict[int, float] = field(default_factory=dict)
    _measured_at: float = 0.0

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    def iter_claims(self) -> Iterator[Claim]:
        return (job.claim for queue in self._waiting.values() for _, job in queue)

    def sizes(self) -> Counter[int]:
        """Return the number of waiting jobs, by endpoint."""
        return Counter({key: len(queue) for key, queue in self._waiting.items() if queue})

    def note_answer(self, endpoint_id: int) -> None:
        """Count a call that ended."""
        self._answered[endpoint_id] += 1

    def target_sizes(self) -> dict[int, int]:
        """Return the number of jobs that should wait, by endpoint: those that will start within the lookahead.

        Call this once per cycle.
        """
        now = self.clock()
        elapsed, self._measured_at = now - self._measured_at, now
        if elapsed > 0:
            weight = 1 - math.exp(-elapsed / AVERAGING_S)
            for key in {*self._rates, *self._answered}:
                rate = self._rates.get(key, 0.0)
                self._rates[key] = rate + weight * (self._answered[key] / elapsed - rate)
            self._answered.clear()
        return {key: n for key, rate in self._rates.items() if (n := int(rate * LOOKAHEAD_S))}

    def add(self, jobs: list[Job], levels: Mapping[int, int]) -> None:
        """Add claimed jobs. `levels` are the numbers of calls that this worker may now have in flight, by endpoint."""
        now = self.clock()
        for job in jobs:
            self._waiting.setdefault(job.claim.counter_keys.endpoint_id, deque()).append((now, job))
        self._levels = Counter(levels)

    def take_startable(self, in_flight: Mapping[int, int]) -> list[Job]:
        """Remove and return the jobs that may start. `in_flight` are the numbers of calls in flight, by endpoint."""
        return [
            queue.popleft()[1]
            for key, queue in self._waiting.items()
            for _ in range(min(len(queue), self._levels[key] - in_flight.get(key, 0)))
        ]

    def take_endpoint(self, endpoint_id: int) -> list[Job]:
        """Remove and return the jobs that wait at this endpoint."""
        return [job for _, job in self._waiting.pop(endpoint_id, ())]

    def take_stale(self, older_than_s: float = STALE_S) -> list[Job]:
        """Remove and return the jobs that have waited too long."""
        since = self.clock() - older_than_s
        stale = []
        for queue in self._waiting.values():
            while queue and queue[0][0] <= since:
                stale.append(queue.popleft()[1])
        return stale
