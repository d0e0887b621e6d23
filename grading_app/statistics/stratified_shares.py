"""Shares of two conditions compared within strata, and the ranks that such comparisons support. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grading_app.statistics.paired import holm

LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class RankRange:
    """The range of ranks of a row: `first` if all rows that do not differ from it are worse, `last` if all are better.

    Rows with the same `first` form a group.
    """

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


def mantel_haenszel(right: Any, sizes: Any, others_right: Any, others_sizes: Any) -> tuple[Any, Any]:
    """Return the sum of (right - expected) over strata and p of the Cochran-Mantel-Haenszel test, without correction.

    All arguments are arrays (rows, strata): each row is one comparison. Strata that only one side has are ignored.
    The statistic is (sum of a - E)^2 / sum of V against chi squared with 1 degree of freedom, with the hypergeometric
    mean and variance in each stratum. It compares shares within strata, so both sides may have different numbers of
    answers in each stratum. N. Mantel & W. Haenszel (1959), "Statistical aspects of the analysis of data from
    retrospective studies of disease", J. Natl. Cancer Inst. 22, 719-748.
    """
    import numpy as np

    total, rights = sizes + others_sizes, right + others_right
    usable = (sizes > 0) & (others_sizes > 0) & (total > 1)
    safe = np.where(usable, total, 2.0)
    excess = np.where(usable, right - sizes * rights / safe, 0.0).sum(axis=-1)
    spread = sizes * others_sizes * rights * (total - rights) / (safe * safe * (safe - 1))
    variance = np.where(usable, spread, 0.0).sum(axis=-1)
    squared = np.divide(excess**2, variance, out=np.zeros_like(excess), where=variance > 1e-12)
    return excess, np.array([math.erfc(math.sqrt(value / 2)) for value in squared.ravel()]).reshape(squared.shape)


def rank_rows(right: Any, sizes: Any, level: float = LEVEL) -> list[RankRange]:
    """Return the rank of each row. right: (rows, strata), the right answers out of `sizes` answers.

    Each pair of rows is tested by `mantel_haenszel`, and p is corrected by Holm over all pairs. A row's first rank is
    one more than the number of better rows. Its last rank is the number of rows minus the number of worse rows.
    """
    import numpy as np

    n = len(right)
    pairs, signs, p_values = [], [], []
    for row in range(n - 1):
        excess, p = mantel_haenszel(right[row], sizes[row], right[row + 1 :], sizes[row + 1 :])
        pairs += [(row, other) for other in range(row + 1, n)]
        signs += excess.tolist()
        p_values += p.tolist()
    better, worse = np.zeros(n, dtype=int), np.zeros(n, dtype=int)
    for (row, other), sign, p in zip(pairs, signs, holm(p_values) if p_values else [], strict=True):
        if p < level and sign:
            high, low = (row, other) if sign > 0 else (other, row)
            worse[high] += 1
            better[low] += 1
    return [RankRange(1 + int(better[row]), n - int(worse[row])) for row in range(n)]


def overlap_groups(intervals: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Return the largest groups of intervals that all overlap each other, from the highest to the lowest.

    An interval may belong to several groups. The groups are the maximal cliques of the interval graph, found by one
    sweep over the ends.
    """
    ends = sorted((bound, kind, index) for index, pair in enumerate(intervals) for kind, bound in enumerate(pair))
    groups: list[list[int]] = []
    present: set[int] = set()
    has_grown = False
    for _, is_end, index in ends:
        if not is_end:
            present.add(index)
            has_grown = True
            continue
        if has_grown:
            groups.append(sorted(present, key=lambda index: -sum(intervals[index])))
            has_grown = False
        present.discard(index)
    return groups[::-1]
