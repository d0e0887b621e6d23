"""Student's interval of a mean: the engine stops by it and the analysis reports it.

scipy is imported where it is used, so that what needs no interval does not pay for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

AT_EACH_END = 2  # Values that `bounded_mean` adds at either end of the range.


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """The interval of a mean of values that lie between two bounds: its center and half-width, in their unit."""

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
    """t such that Student's distribution with `df` degrees of freedom lies within -t and t with this probability."""
    from scipy.special import stdtrit  # Not scipy.stats, which costs a web process 70 MB.

    return float(stdtrit(df, (1 + confidence) / 2))


def bounded_mean(n: int, mean: float, sd: float, bounds: tuple[float, float], confidence: float = 0.95) -> MeanInterval:
    """Student's interval of a mean, taken over the values and two more at either bound.

    With n values between L and H: m = (n mean + 2 L + 2 H) / (n + 4), and of all n + 4 the variance s^2 about m; the
    margin is t s / sqrt(n + 4), t with n + 3 degrees of freedom. Of values that can only be L or H this is the interval
    of A. Agresti & B. A. Coull (1998), "Approximate is better than 'exact' for interval estimation of binomial
    proportions", The American Statistician 52, 119-126, with t for z. Their reason holds here, too: values that were
    alike so far may differ yet, so no spread is ever taken for none. `sd` is the sample's (n - 1), 0 of one value.
    ValueError unless n > 0, L < H, L <= mean <= H and sd >= 0.
    """
    low, high = bounds
    if not (n > 0 and low < high and low - 1e-9 <= mean <= high + 1e-9 and sd >= 0):
        raise ValueError(f"no mean: {mean} of {n} values from {low} to {high}, sd {sd}")
    many = n + 2 * AT_EACH_END
    center = (n * mean + AT_EACH_END * (low + high)) / many
    squares = (n - 1) * sd**2 + n * (mean - center) ** 2 + AT_EACH_END * ((low - center) ** 2 + (high - center) ** 2)
    margin = student_quantile(confidence, many - 1) * math.sqrt(squares / (many - 1) / many)
    return MeanInterval(center, margin, bounds)
