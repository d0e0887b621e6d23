"""The effective number of right or wrong answers, if several answers belong to one item.

The engine's stopping rule and the analysis both use it. numpy arrays of totals work as well as numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evalsite.lib.stats.t_interval import student_quantile

# The items that a design effect takes as seen at each end of the scale, besides the real ones.
AT_EACH_END = 0.25


@dataclass(frozen=True, slots=True)
class AnswerSums:
    """Sums over items, of which item i has S_i right of n_i answers. All but the sizes may be arrays.

    n: of n_i. items: their number. sizes_squared: of n_i^2. right: of S_i. right_squared: of S_i^2.
    sizes_by_right: of n_i S_i.
    """

    n: float
    items: int
    sizes_squared: float
    right: Any
    right_squared: Any
    sizes_by_right: Any


def estimate_effective_size(sums: AnswerSums, confidence: float = 0.95) -> Any:
    """Return the number of independent answers whose share is known as well as that of these.

    It is n / D * (t(n - 1) / t(G - 1))^2 for G items, where D is the design effect and t the quantile of Student's
    distribution. It lies between n^2 / sum of n_i^2 (each item counts as one answer) and n. With one answer per item it
    is n. E. L. Korn & B. I. Graubard (1998), "Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data", Survey Methodology 24, 193-201.
    One item says nothing about other items: it counts as one answer.
    """
    least = sums.n * sums.n / sums.sizes_squared
    if sums.items < 2:
        return least + 0 * sums.right
    fewer = (student_quantile(confidence, sums.n - 1) / student_quantile(confidence, sums.items - 1)) ** 2
    return _between(least, sums.n / _design_effect(sums) * fewer, sums.n)


def _design_effect(sums: AnswerSums) -> Any:
    """Return the clustered variance of a share over that of as many independent answers, at least 1.

    Both variances are taken without their corrections for few items and answers, so that one answer per item gives 1.
    Both include AT_EACH_END items of right answers alone, and as many of wrong ones. Without them, a share near 0 or 1
    says nothing about how alike the answers of an item are, and one wrong answer of 200 would change the effective size
    from 10 to 200. The number was chosen by simulation: `benchmarks/coverage.py`.
    """
    size = sums.sizes_squared / sums.n  # The mean size of an answer's item.
    n = sums.n + 2 * AT_EACH_END * size
    share = (sums.right + AT_EACH_END * size) / n
    squares = sums.right_squared - 2 * share * sums.sizes_by_right + share**2 * sums.sizes_squared
    squares = squares + AT_EACH_END * size**2 * (share**2 + (1 - share) ** 2)
    return _between(1.0, squares / (n * share * (1 - share)), float("inf"))


def _between(least: float, value: Any, most: float) -> Any:
    """Return the value or the nearest end of its range. Plain numbers do not load numpy."""
    if isinstance(value, float):
        return min(most, max(least, value))
    return value.clip(least, most)
