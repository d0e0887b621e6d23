"""Student's interval of a mean, used by the engine's stopping rule and by the analysis.

scipy is imported only inside the function that needs it, to save memory in processes that compute no interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
