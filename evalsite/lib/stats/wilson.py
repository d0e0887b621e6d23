"""The interval of a proportion, in plain Python: the engine stops by it and the analysis reports it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Interval:
    """A proportion's Wilson interval: its center and half-width; low and high stay within 0 and 1."""

    center: float
    margin: float

    @property
    def low(self) -> float:
        return min(1.0, max(0.0, self.center - self.margin))

    @property
    def high(self) -> float:
        return max(0.0, min(1.0, self.center + self.margin))

    def beyond_guessing(self, chance: float) -> Interval:
        """The interval of (p - chance) / (1 - chance): what is known of an accuracy once guessing is taken off it.

        The map is monotone, so this covers as often as the interval itself. ValueError unless 0 <= chance < 1.
        """
        if not 0 <= chance < 1:
            raise ValueError(f"a chance to guess right lies from 0 to below 1, not at {chance}")
        return Interval((self.center - chance) / (1 - chance), self.margin / (1 - chance))


def normal_quantile(confidence: float) -> float:
    """z such that a standard normal lies within -z and z with this probability: 1.95996 for .95."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def wilson(successes: float, n: float, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion. Counts may be fractions (after a correction for guessing).

    center = (p + z^2 / 2n) / (1 + z^2 / n), margin = z sqrt(p (1 - p) / n + z^2 / 4n^2) / (1 + z^2 / n).
    E. B. Wilson (1927), "Probable inference, the law of succession, and statistical inference", JASA 22, 209-212.
    ValueError unless 0 <= successes <= n and n > 0.
    """
    if not (n > 0 and 0 <= successes <= n):
        raise ValueError(f"no proportion: {successes} of {n}")
    z, p = normal_quantile(confidence), successes / n
    shrink = 1 + z * z / n
    margin = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / shrink
    return Interval((p + z * z / (2 * n)) / shrink, margin)
