"""Variance components of scores by item, condition and repetition, and what a larger design would gain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from evalsite.lib.stats.t_interval import student_quantile
from grading_app.statistics.item_scores import Floats, ItemScores


@dataclass(frozen=True, slots=True)
class Components:
    """Variances of items, conditions, their interaction, and repetitions within a cell.

    items, conditions: the numbers that were used. repetitions: the harmonic mean of the scores per cell. repetition is
    None if no cell has two scores; then `interaction` holds both.
    """

    items: int
    conditions: int
    repetitions: float
    item: float
    condition: float
    interaction: float
    repetition: float | None

    @property
    def total(self) -> float:
        return self.item + self.condition + self.interaction + (self.repetition or 0.0)

    def standard_error(self, items: int, repetitions: int) -> float:
        """Return the standard error of the difference of two conditions over so many items and repetitions.

        sqrt(2 (interaction + repetition / repetitions) / items): the same items are answered under both conditions.
        """
        return math.sqrt(2 * (self.interaction + (self.repetition or 0.0) / repetitions) / items)

    def half_width(self, items: int, repetitions: int, confidence: float = 0.95) -> float:
        return student_quantile(confidence, items - 1) * self.standard_error(items, repetitions)


def variance_components(scores: ItemScores) -> Components | None:
    """Return the components of the items that every condition has scores of, by the analysis of variance.

    The mean squares of cell means are set equal to their expectations, and a negative component becomes zero: S. R.
    Searle, G. Casella & C. E. McCulloch (1992), Variance components, chapter 4. With equal numbers of repetitions, and
    no negative component, these are the estimates of restricted maximum likelihood. Return None below two items or two
    conditions.
    """
    complete = (scores.n > 0).all(axis=1)
    items, conditions = int(complete.sum()), len(scores.conditions)
    if items < 2 or conditions < 2:
        return None
    means, n, within = scores.mean[complete], scores.n[complete], scores.within[complete]
    share, freedom = float((1 / n).mean()), int((n - 1).sum())
    repetition = float(within.sum() / freedom) if freedom else None
    of_item, of_condition, of_both = _mean_squares(means)
    return Components(
        items,
        conditions,
        1 / share,
        max(0.0, (of_item - of_both) / conditions),
        max(0.0, (of_condition - of_both) / items),
        max(0.0, of_both - share * (repetition or 0.0)),
        repetition,
    )


def _mean_squares(means: Floats) -> tuple[float, float, float]:
    """Return the mean squares of items, conditions and their interaction, for one value in each cell."""
    items, conditions = means.shape
    grand = means.mean()
    by_item, by_condition = means.mean(axis=1, keepdims=True), means.mean(axis=0, keepdims=True)
    left = means - by_item - by_condition + grand
    return (
        conditions * float(((by_item - grand) ** 2).sum()) / (items - 1),
        items * float(((by_condition - grand) ** 2).sum()) / (conditions - 1),
        float((left**2).sum()) / ((items - 1) * (conditions - 1)),
    )


def paired_power(difference: float, se: float, items: int, alpha: float = 0.05) -> float:
    """Return the power of the two-sided paired t-test over items to find this true difference.

    The noncentral t distribution: J. Cohen (1988), Statistical power analysis, 2nd edition, chapter 2. A difference
    without error is found always.
    """
    from scipy.special import nctdtr

    if se <= 0:
        return 1.0
    critical, shift = student_quantile(1 - alpha, items - 1), abs(difference) / se
    # scipy gives NaN for tails that are too small to compute.
    below, opposite = (np.nan_to_num(nctdtr(items - 1, shift, end)) for end in (critical, -critical))
    return float(1 - below + opposite)


def needed_items(components: Components, difference: float, repetitions: int, power: float = 0.8) -> int | None:
    """Return the smallest number of items that finds the difference with this power; None above ten million.

    Raise ValueError unless the difference is above zero.
    """
    if difference <= 0:
        raise ValueError(f"no number of items finds a difference of {difference}")

    def is_enough(items: int) -> bool:
        return paired_power(difference, components.standard_error(items, repetitions), items) >= power

    high = 2
    while not is_enough(high):
        high *= 2
        if high > 10_000_000:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
