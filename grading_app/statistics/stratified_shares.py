"""Shares of two conditions compared within strata, and ranks that such comparisons support. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalsite.lib.stats.wilson import wilson
from grading_app.statistics.paired import holm

LEVEL = 0.05
Difference = tuple[float, float, float]
"""A difference with the ends of its interval."""


@dataclass(frozen=True, slots=True)
class RankRange:
    """The ranks that the tests leave to a row: `first` if all that it cannot be told from are worse, `last` if better.

    Rows with the same `first` are a group: no test places another row of the table between them and the top.
    """

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


def mantel_haenszel(right: Any, sizes: Any, others_right: Any, others_sizes: Any) -> tuple[Any, Any]:
    """Return the sum of (right - expected) over strata and p of the Cochran-Mantel-Haenszel test, without correction.

    All arguments are arrays (rows, strata): each row is one comparison. A stratum that one side lacks counts nothing.
    The statistic is (sum of a - E)^2 / sum of V against chi squared with 1 degree of freedom, with the hypergeometric
    mean and variance in each stratum. It compares shares within strata, so that sides may have different numbers of
    answers in each. N. Mantel & W. Haenszel (1959), "Statistical aspects of the analysis of data from retrospective
    studies of disease", J. Natl. Cancer Inst. 22, 719-748.
    """
    import numpy as np

    total, rights = sizes + others_sizes, right + others_right
    usable = (sizes > 0) & (others_sizes > 0) & (total > 1)
    safe = np.where(usable, total, 2.0)
    excess = np.where(usable, right - sizes * rights / safe, 0.0).sum(axis=-1)
    spread = sizes * others_sizes * rights * (total - rights) / (safe * safe * (safe - 1))
    variance = np.where(usable, spread, 0.0).sum(axis=-1)
    squared = np.divide(excess**2, variance, out=np.zeros_like(excess), where=variance > 1e-12)
    return excess, np.array([math.erfc(math.sqrt(one / 2)) for one in squared.ravel()]).reshape(squared.shape)


def rank_rows(right: Any, sizes: Any, level: float = LEVEL) -> list[RankRange]:
    """Return the rank of each row of an array (rows, strata) of right answers of `sizes` answers.

    Each pair of rows is tested by `mantel_haenszel`, and p is corrected by Holm over all pairs. A row's first rank is
    one more than the number of rows that are better, its last rank the number of rows minus those that are worse.
    """
    import numpy as np

    n = len(right)
    pairs, signs, ps = [], [], []
    for row in range(n - 1):
        excess, p = mantel_haenszel(right[row], sizes[row], right[row + 1 :], sizes[row + 1 :])
        pairs += [(row, other) for other in range(row + 1, n)]
        signs += excess.tolist()
        ps += p.tolist()
    better, worse = np.zeros(n, dtype=int), np.zeros(n, dtype=int)
    for (row, other), sign, p in zip(pairs, signs, holm(ps) if ps else [], strict=True):
        if p < level and sign:
            high, low = (row, other) if sign > 0 else (other, row)
            worse[high] += 1
            better[low] += 1
    return [RankRange(1 + int(better[row]), n - int(worse[row])) for row in range(n)]


def newcombe_difference(
    right: float, n: float, other_right: float, other_n: float, confidence: float = 0.95
) -> Difference:
    """Return the difference of two independent shares, the other one minus this one, with Newcombe's interval.

    Method 10: from the ends l and u of Wilson's intervals, d - sqrt((p2 - l2)^2 + (u1 - p1)^2) and d + sqrt((u2 - p2)^2
    + (p1 - l1)^2). It stays within -1 and 1 and has a width for shares of 0 and 1. If both answered the same items, it
    is too wide rather than too narrow. R. G. Newcombe (1998), "Interval estimation for the difference between
    independent proportions", Statistics in Medicine 17, 873-890.
    """
    p, q = right / n, other_right / other_n
    one, two = wilson(right, n, confidence), wilson(other_right, other_n, confidence)
    d = q - p
    low = d - math.hypot(q - two.low, one.high - p)
    return d, low, d + math.hypot(two.high - q, p - one.low)


def overlap_groups(intervals: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Return the largest groups of intervals that all overlap each other, from the highest to the lowest.

    An interval may belong to several groups. They are the maximal cliques of the interval graph, found by one sweep
    over the ends.
    """
    ends = sorted((bound, kind, at) for at, pair in enumerate(intervals) for kind, bound in enumerate(pair))
    groups: list[list[int]] = []
    present: set[int] = set()
    grew = False
    for _, is_end, at in ends:
        if not is_end:
            present.add(at)
            grew = True
            continue
        if grew:
            groups.append(sorted(present, key=lambda one: -sum(intervals[one])))
            grew = False
        present.discard(at)
    return groups[::-1]
