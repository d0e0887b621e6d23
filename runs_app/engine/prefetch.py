"""Prefetch: early claims, so that the next call starts when one ends, and not a cycle later.

A cycle takes tens of milliseconds. If slots waited for cycles, a provider that answers as quickly would be idle half of
the time. So a worker also claims the trials that it will start before its next cycle is over. It derives their number
from the rate of recent answers, so it claims none early where calls take seconds. A waiting trial has two costs.
Another worker could have started it, and it starts even if its run was paused a moment ago.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from runs_app.engine.admission import Claim
from runs_app.engine.jobs import Job

LOOKAHEAD_S = 0.1  # A cycle, the gathering before it, and as much again for a slow one.
MEMORY_S = 0.5  # The time over which the rate of answers is averaged.
STALE_S = 1.0  # The estimated rate was wrong: jobs that wait longer are given back without being asked.


@dataclass(slots=True)
class PrefetchQueue:
    """Jobs that wait for a slot, by endpoint, oldest first, and the rate at which slots come free.

    For one event loop.
    """

    clock: Callable[[], float] = time.monotonic
    _waiting: dict[int, deque[tuple[float, Job]]] = field(default_factory=dict)
    _levels: Counter[int] = field(default_factory=Counter)
    _answered: Counter[int] = field(default_factory=Counter)
    _paces: dict[int, float] = field(default_factory=dict)
    _measured: float = 0.0

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    def claims(self) -> Iterator[Claim]:
        return (job.claim for queue in self._waiting.values() for _, job in queue)

    def waiting(self) -> Counter[int]:
        """Return the number of waiting jobs, by endpoint."""
        return Counter({key: len(queue) for key, queue in self._waiting.items() if queue})

    def note_answer(self, endpoint_id: int) -> None:
        """Count a call that ended."""
        self._answered[endpoint_id] += 1

    def target_sizes(self) -> dict[int, int]:
        """Return how many jobs should wait, by endpoint: those that will start within the lookahead.

        Call it once a cycle.
        """
        now = self.clock()
        passed, self._measured = now - self._measured, now
        if passed > 0:
            weight = 1 - math.exp(-passed / MEMORY_S)
            for key in {*self._paces, *self._answered}:
                pace = self._paces.get(key, 0.0)
                self._paces[key] = pace + weight * (self._answered[key] / passed - pace)
            self._answered.clear()
        return {key: n for key, pace in self._paces.items() if (n := int(pace * LOOKAHEAD_S))}

    def add(self, jobs: list[Job], levels: Mapping[int, int]) -> None:
        """Add claimed jobs. `levels` is the number of calls that may be in flight here from now on, by endpoint."""
        now = self.clock()
        for job in jobs:
            self._waiting.setdefault(job.claim.counter_keys.endpoint_id, deque()).append((now, job))
        self._levels = Counter(levels)

    def take_startable(self, in_flight: Mapping[int, int]) -> list[Job]:
        """Remove and return the jobs that may start beside the calls in flight, given by endpoint."""
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
        since, found = self.clock() - older_than_s, []
        for queue in self._waiting.values():
            while queue and queue[0][0] <= since:
                found.append(queue.popleft()[1])
        return found
