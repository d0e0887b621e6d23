"""The order in which workers claim the trials of a run, and the position that a worker has reached in it.

The order is that of the items by default. With a seed, it is a pseudo-random order of items and repetitions, equal on
every site. All dimensions of an item stay together, so that a provider can cache what their prompts share. The order
changes nothing about a trial or its request.

Until a vacuum, the index of claimable trials keeps the entries of all claimed ones. A claim that begins at the start
walks over them: 17 ms after a million claims. So a claim begins where the worker's last one ended. Trials that became
claimable before that position, because a worker released them, wait for REWIND_S at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

REWIND_S = 1.0  # After this time, a claim begins at the start again.


class ClaimPosition(NamedTuple):
    """A place in the order of claims. Without values, it is before all trials."""

    attempts: int = 0
    place: int = -(2**31)
    sample_idx: int = 0
    item_id: int = 0


START = ClaimPosition()


@dataclass(slots=True)
class ClaimPositions:
    """The positions of one worker, by run, each with the time when its claims last began at the start."""

    clock: Callable[[], float] = time.monotonic
    _positions: dict[int, tuple[float, ClaimPosition]] = field(default_factory=dict)

    def get(self, run_id: int) -> ClaimPosition:
        """Return the position from which to claim."""
        rewound_at, position = self._positions.get(run_id, (0.0, START))
        if self.clock() - rewound_at > REWIND_S:
            self._positions.pop(run_id, None)
            return START
        return position

    def note(self, claimed: Iterable[tuple[int, ClaimPosition]]) -> None:
        """Note the run and the position of each claimed trial."""
        now = self.clock()
        for run_id, position in claimed:
            rewound_at, furthest = self._positions.get(run_id, (now, START))
            self._positions[run_id] = rewound_at, max(furthest, position)


def make_place_sql(item: str, sample_idx: str, seed: str = "%(shuffle)s::int") -> str:
    """Return the SQL of a trial's `place`: 0 if the seed is NULL.

    item, sample_idx, seed: SQL of the item's id, of the repetition, and of the experiment's seed.
    """
    return f"""CASE WHEN {seed} IS NULL THEN 0 ELSE (
        SELECT ('x' || substr(md5(concat_ws('/', {seed}, i.key, {sample_idx})), 1, 7))::bit(28)::int
        FROM datasets_app_item i WHERE i.id = {item}) END"""  # noqa: S608 - SQL of this package
