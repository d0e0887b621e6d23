"""Claimed a moment ahead, so that a call that lands is followed by the next at once and not a turn later.

A turn takes tens of milliseconds. A provider that answers in as many would stand idle for half of its time if each of
its slots had to wait for a turn. So a drain also claims what it will start before its next turn is over, at the pace of
the calls that landed lately. That is none where calls take seconds: whoever waits here holds a claim that another
worker could have started, and starts even though its run was paused a moment ago.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from runs_app.engine.admission import Claim
from runs_app.engine.jobs import Job

LOOKAHEAD_S = 0.1  # A turn, what gathers before it, and as much again for one that is slow.
MEMORY_S = 0.5  # Of the pace.
STALE_S = 1.0  # The pace was wrong: what waits longer is given back, unasked.


@dataclass(slots=True)
class PrefetchQueue:
    """Jobs that wait for a slot, by endpoint, oldest first, and how fast slots come free. Of one event loop."""

    clock: Callable[[], float] = time.monotonic
    _waiting: dict[int, deque[tuple[float, Job]]] = field(default_factory=dict)
    _levels: Counter[int] = field(default_factory=Counter)
    _landed: Counter[int] = field(default_factory=Counter)
    _paces: dict[int, float] = field(default_factory=dict)
    _measured: float = 0.0

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    def claims(self) -> Iterator[Claim]:
        return (job.claim for queue in self._waiting.values() for _, job in queue)

    def waiting(self) -> Counter[int]:
        """Jobs by endpoint."""
        return Counter({key: len(queue) for key, queue in self._waiting.items() if queue})

    def land(self, endpoint_id: int) -> None:
        """A call came in."""
        self._landed[endpoint_id] += 1

    def wanted(self) -> dict[int, int]:
        """Jobs to have waiting, by endpoint: as many as will start within the lookahead. To be asked once a turn."""
        now = self.clock()
        passed, self._measured = now - self._measured, now
        if passed > 0:
            weight = 1 - math.exp(-passed / MEMORY_S)
            for key in {*self._paces, *self._landed}:
                pace = self._paces.get(key, 0.0)
                self._paces[key] = pace + weight * (self._landed[key] / passed - pace)
            self._landed.clear()
        return {key: n for key, pace in self._paces.items() if (n := int(pace * LOOKAHEAD_S))}

    def add(self, jobs: list[Job], levels: Mapping[int, int]) -> None:
        """Jobs that were claimed. `levels`: how many calls may be in flight here from now on, by endpoint."""
        now = self.clock()
        for job in jobs:
            self._waiting.setdefault(job.claim.place.endpoint_id, deque()).append((now, job))
        self._levels = Counter(levels)

    def startable(self, flying: Mapping[int, int]) -> list[Job]:
        """What may start beside the calls in flight, by endpoint; it waits no more."""
        return [
            queue.popleft()[1]
            for key, queue in self._waiting.items()
            for _ in range(min(len(queue), self._levels[key] - flying.get(key, 0)))
        ]

    def at(self, endpoint_id: int) -> list[Job]:
        """What waited at this endpoint, which waits no more."""
        return [job for _, job in self._waiting.pop(endpoint_id, ())]

    def stale(self, older_than_s: float = STALE_S) -> list[Job]:
        """What waited for too long, which waits no more."""
        since, found = self.clock() - older_than_s, []
        for queue in self._waiting.values():
            while queue and queue[0][0] <= since:
                found.append(queue.popleft()[1])
        return found
