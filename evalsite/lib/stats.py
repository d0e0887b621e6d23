"""Intervals of means (Student) and shares (Wilson), and the effective number of answers if several belong to one item.

The engine's stopping rule and the analysis use them. scipy is imported only inside the function that needs it, to save
memory in processes that compute no such interval. The effective number accepts numbers and numpy arrays of totals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

VALUES_AT_EACH_END = 2  # The number of values that `compute_bounded_interval` adds at each bound.


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """An interval of a mean of bounded values: center and half-width, both in the unit of the values."""

    center: float
    margin: float
    bounds: tuple[float, float]

    @property
    def low(self) -> float:
        return max(self.bounds[0], self.center - self.margin)

    @property
    def high(self) -> float:
        return min(self.bounds[1], self.center + self.margin)


def student_quantile(confidence: float, df: float) -> float:
    """Return t such that a Student variable with `df` degrees of freedom lies in -t to t with this probability."""
    from scipy.special import stdtrit  # scipy.stats would cost a web process 70 MB.

    return float(stdtrit(df, (1 + confidence) / 2))


def compute_bounded_interval(
    n: int, mean: float, sd: float, bounds: tuple[float, float], confidence: float = 0.95
) -> MeanInterval:
    """Return Student's interval of a mean, computed over the values and two more at each bound.

    With n values between L and H: m = (n mean + 2 L + 2 H) / (n + 4), and s^2 is the variance of all n + 4 values about
    m. The margin is t s / sqrt(n + 4), where t has n + 3 degrees of freedom.
    If all values are either L or H, this is the interval of A. Agresti & B. A. Coull (1998), "Approximate is better
    than 'exact' for interval estimation of binomial proportions", The American Statistician 52, 119-126, with t in
    place of z. The added values keep the spread above zero, because values that are equal so far may still differ
    later.
    sd: the sample standard deviation (divisor n - 1), 0 for one value. Raise ValueError unless n > 0, L < H,
    L <= mean <= H and sd >= 0.
    """
    low, high = bounds
    if not (n > 0 and low < high and low - 1e-9 <= mean <= high + 1e-9 and sd >= 0):
        raise ValueError(f"no interval: mean {mean} of {n} values from {low} to {high}, sd {sd}")
    total = n + 2 * VALUES_AT_EACH_END
    center = (n * mean + VALUES_AT_EACH_END * (low + high)) / total
    squares = (
        (n - 1) * sd**2 + n * (mean - center) ** 2 + VALUES_AT_EACH_END * ((low - center) ** 2 + (high - center) ** 2)
    )
    margin = student_quantile(confidence, total - 1) * math.sqrt(squares / (total - 1) / total)
    return MeanInterval(center, margin, bounds)


@dataclass(frozen=True, slots=True)
class Interval:
    """A Wilson interval of a proportion: center and half-width. `low` and `high` stay within 0 and 1."""

    center: float
    margin: float

    @property
    def low(self) -> float:
        return min(1.0, max(0.0, self.center - self.margin))

    @property
    def high(self) -> float:
        return max(0.0, min(1.0, self.center + self.margin))

    def beyond_guessing(self, chance: float) -> Interval:
        """Return the interval of (p - chance) / (1 - chance), the accuracy corrected for guessing.

        The transformation is monotone, so the coverage stays the same. Raise ValueError unless 0 <= chance < 1.
        """
        if not 0 <= chance < 1:
            raise ValueError(f"the chance to guess right must be at least 0 and below 1, not {chance}")
        return Interval((self.center - chance) / (1 - chance), self.margin / (1 - chance))


def normal_quantile(confidence: float) -> float:
    """Return z such that a standard normal lies within -z and z with this probability: 1.95996 for .95."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence must be between 0 and 1, not {confidence}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def wilson(successes: float, n: float, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of a proportion.

    The counts may be fractions, for example after a correction for guessing.
    center = (p + z^2 / 2n) / (1 + z^2 / n), margin = z sqrt(p (1 - p) / n + z^2 / 4n^2) / (1 + z^2 / n).
    E. B. Wilson (1927), "Probable inference, the law of succession, and statistical inference", JASA 22, 209-212.
    Raise ValueError unless 0 <= successes <= n and n > 0.
    """
    if not (n > 0 and 0 <= successes <= n):
        raise ValueError(f"no proportion: {successes} of {n}")
    z, p = normal_quantile(confidence), successes / n
    shrink = 1 + z * z / n
    margin = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / shrink
    return Interval((p + z * z / (2 * n)) / shrink, margin)


def modified_wilson(successes: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return the ends of Wilson's interval, corrected if nearly all answers are equal.

    Wilson's interval misses proportions near 0 and 1 too often: for n = 10 and p = .985, it covers 86 %. With one or
    two successes (or three, if n > 50), the lower end is therefore lambda / n. A Poisson variable with mean lambda
    reaches the number of successes with probability 1 - confidence. The upper end is corrected in the same way.
    L. D. Brown, T. T. Cai & A. DasGupta (2001), "Interval estimation for a binomial proportion", Statistical Science
    16, 101-133, section 4.1.1. The counts may be fractions. Raise ValueError in the cases of `wilson`.
    """
    plain = wilson(successes, n, confidence)
    return (
        _lower_end(plain.low, successes, n, confidence),
        1 - _lower_end(1 - plain.high, n - successes, n, confidence),
    )


def _lower_end(low: float, successes: float, n: float, confidence: float) -> float:
    from scipy.special import gammaincinv  # scipy.stats would cost a web process 70 MB.

    max_successes = 2.5 if n <= 50 else 3.5  # Halves, so that fractional counts are rounded.
    if not 0 < successes < max_successes:
        return low
    return min(low, float(gammaincinv(successes, 1 - confidence)) / n)


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
