"""Wilson's interval of a proportion, in plain Python, used by the engine's stopping rule and by the analysis."""

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
            raise ValueError(f"a chance to guess right lies from 0 to below 1, not at {chance}")
        return Interval((self.center - chance) / (1 - chance), self.margin / (1 - chance))


def normal_quantile(confidence: float) -> float:
    """Return z such that a standard normal lies within -z and z with this probability: 1.95996 for .95."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")
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
