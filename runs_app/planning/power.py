"""The smallest difference between two conditions that a design can detect. Pure.

Both conditions answer the same items, so the comparison is paired. The items are the sample: repetitions of an item do
not count as items.

With n items, K repetitions of each, and answers of total variance 1,

    d = (z(1 - alpha/2) + z(power)) * sqrt((2 b (1 - r) + 2 (1 - b) / K) / n)

Here b is the share of the variance between items (the intraclass correlation of one condition's answers). The
correlation of the two conditions over items is r. So d is in standard deviations of a single answer.

Source: Miller (2024), "Adding Error Bars to Evals", arXiv:2411.00640, section 5 (paired comparison, K resamples of an
item), with its variances written as shares. It is a normal approximation: with fewer than about 20 items the true d is
larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

FEW_ITEMS = 20


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The assumed share of the variance `between` items, and the `correlation` of two conditions over items."""

    between: float = 0.7
    correlation: float = 0.5
    alpha: float = 0.05
    power: float = 0.8

    def __post_init__(self) -> None:
        if not (0 <= self.between <= 1 and -1 <= self.correlation <= 1 and 0 < self.alpha < 1 and 0 < self.power < 1):
            raise ValueError(f"invalid assumptions: {self}")


DEFAULT_ASSUMPTIONS = Assumptions()


@dataclass(frozen=True, slots=True)
class DetectableEffect:
    """The minimum detectable effect at the requested power: `d` in standard deviations of one answer.

    `share` is the same effect for right or wrong answers. It is largest if half of the answers are right, which is
    assumed here. The last two fields are `d` for twice the calls: with twice the items, or with twice the repetitions.
    """

    items: int
    samples: int
    assumptions: Assumptions
    d: float
    with_twice_the_items: float
    with_twice_the_samples: float

    @property
    def share(self) -> float:
        return min(1.0, self.d / 2)

    @property
    def percentage_points(self) -> float:
        return 100 * self.share

    @property
    def has_few_items(self) -> bool:
        return self.items < FEW_ITEMS


def compute_detectable_effect(
    items: int, samples: int, assumptions: Assumptions = DEFAULT_ASSUMPTIONS
) -> DetectableEffect | None:
    """Return the minimum detectable effect, or None for fewer than two items. Raise ValueError if samples < 1."""
    if samples < 1:
        raise ValueError(f"an item needs at least one repetition, not {samples}")
    if items < 2:
        return None
    return DetectableEffect(
        items,
        samples,
        assumptions,
        d=compute_smallest_difference(items, samples, assumptions),
        with_twice_the_items=compute_smallest_difference(2 * items, samples, assumptions),
        with_twice_the_samples=compute_smallest_difference(items, 2 * samples, assumptions),
    )


def compute_smallest_difference(items: int, samples: int, assumptions: Assumptions) -> float:
    """Return d by the formula above."""
    normal = NormalDist()
    quantiles = normal.inv_cdf(1 - assumptions.alpha / 2) + normal.inv_cdf(assumptions.power)
    of_items = 2 * assumptions.between * (1 - assumptions.correlation)
    of_answers = 2 * (1 - assumptions.between) / samples
    return max(0.0, quantiles) * math.sqrt((of_items + of_answers) / items)
