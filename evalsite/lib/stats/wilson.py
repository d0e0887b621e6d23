"""Wilson's interval of a proportion, used by the engine's stopping rule and by the analysis.

scipy is imported only inside the function that needs it, to save memory in processes that compute no such interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


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
