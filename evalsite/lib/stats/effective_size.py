"""The effective number of right or wrong answers, if several answers belong to one item.

The engine's stopping rule and the analysis use it. It accepts numbers and numpy arrays of totals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evalsite.lib.stats.t_interval import student_quantile

# The number of items at each end of the scale that a design effect adds to the real items.
ITEMS_AT_EACH_END = 0.25


@dataclass(frozen=True, slots=True)
class AnswerSums:
    """Sums over items, where item i has S_i right of n_i answers. The sums of S_i may be arrays.

    n: of n_i. items: the number of items. sizes_squared: of n_i^2. right: of S_i. right_squared: of S_i^2.
    sizes_by_right: of n_i S_i.
    """

    n: float
    items: int
    sizes_squared: float
    right: Any
    right_squared: Any
    sizes_by_right: Any


def estimate_effective_size(sums: AnswerSums, confidence: float = 0.95) -> Any:
    """Return the number of independent answers that would give the same precision of the share.

    It is n / D * (t(n - 1) / t(G - 1))^2 for G items, where D is the design effect and t the quantile of Student's
    distribution. It lies between n^2 / sum of n_i^2 (each item counts as one answer) and n. With one answer per item,
    it is n. E. L. Korn & B. I. Graubard (1998), "Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data", Survey Methodology 24, 193-201.
    A single item says nothing about other items, so it counts as one answer.
    """
    lowest = sums.n * sums.n / sums.sizes_squared
    if sums.items < 2:
        return lowest + 0 * sums.right
    degrees_factor = (student_quantile(confidence, sums.n - 1) / student_quantile(confidence, sums.items - 1)) ** 2
    # The clustered variance of a share over that of as many independent answers, at least 1. Both variances omit the
    # corrections for few items and answers, so that one answer per item gives 1. Both include ITEMS_AT_EACH_END items
    # with only right answers, and as many with only wrong answers. Without these items, a share near 0 or 1 says
    # nothing about the correlation of answers to an item. One wrong answer of 200 would then change the effective size
    # from 10 to 200. The number was chosen by simulation (`benchmarks/coverage.py`).
    size = sums.sizes_squared / sums.n  # The mean size of an answer's item.
    n = sums.n + 2 * ITEMS_AT_EACH_END * size
    share = (sums.right + ITEMS_AT_EACH_END * size) / n
    squares = sums.right_squared - 2 * share * sums.sizes_by_right + share**2 * sums.sizes_squared
    squares = squares + ITEMS_AT_EACH_END * size**2 * (share**2 + (1 - share) ** 2)
    design_effect = _clip(1.0, squares / (n * share * (1 - share)), float("inf"))
    return _clip(lowest, sums.n / design_effect * degrees_factor, sums.n)


def _clip(low: float, value: Any, high: float) -> Any:
    """Return the value or the nearest end of the range, for a number without loading numpy."""
    if isinstance(value, float):
        return min(high, max(low, value))
    return value.clip(low, high)
