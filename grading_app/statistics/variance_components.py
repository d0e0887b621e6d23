"""Variance components of scores by item, condition and repetition, and the precision of larger designs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from evalsite.lib.stats.t_interval import student_quantile
from grading_app.statistics.item_scores import Floats, ItemScores

MIN_ITEMS = 10  # Intervals of shares need this number of items.
TOLERANCE = 1e-6  # Shares closer than this to 0 or 1 are not transformed.


@dataclass(frozen=True, slots=True)
class Components:
    """Variances of items, conditions, their interaction, and repetitions within a cell.

    items, conditions: the numbers used. repetitions: the harmonic mean number of scores per cell. repetition: None if
    no cell has two scores; then `interaction` includes it.
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
        """Return the standard error of the difference of two conditions for these numbers of items and repetitions.

        sqrt(2 (interaction + repetition / repetitions) / items): the same items are answered under both conditions.
        """
        return math.sqrt(2 * (self.interaction + (self.repetition or 0.0) / repetitions) / items)

    def half_width(self, items: int, repetitions: int, confidence: float = 0.95) -> float:
        return student_quantile(confidence, items - 1) * self.standard_error(items, repetitions)


def variance_components(scores: ItemScores) -> Components | None:
    """Return the components over the items that have scores in every condition, by the analysis of variance.

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
    share, df = float((1 / n).mean()), int((n - 1).sum())
    repetition = float(within.sum() / df) if df else None
    item_square, condition_square, interaction_square = _mean_squares(means)
    return Components(
        items,
        conditions,
        1 / share,
        max(0.0, (item_square - interaction_square) / conditions),
        max(0.0, (condition_square - interaction_square) / items),
        max(0.0, interaction_square - share * (repetition or 0.0)),
        repetition,
    )


def share_intervals(scores: ItemScores, confidence: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return the intervals of the components' shares of the total by name; empty below MIN_ITEMS complete items.

    The intervals are over items, for these conditions: Student's with the jackknife's standard error of the logit of
    the share. A share that is not positive without one of the items is not transformed. R. G. Miller (1974), "The
    jackknife - a review", Biometrika 61, 1-15, recommends such transformations for variances. Intervals without width
    are excluded.
    """
    complete = scores.select_items(np.asarray((scores.n > 0).all(axis=1)))
    items, conditions = complete.mean.shape
    if items < MIN_ITEMS or conditions < 2:
        return {}
    names = ("item", "condition", "interaction", *(("repetition",) if (complete.n > 1).any() else ()))
    shares = _jackknife_shares(complete)
    reach = student_quantile(confidence, items - 1) * math.sqrt((items - 1) / items)
    intervals = {}
    for name, share, jackknife_shares in zip(names, shares[-1], shares[:-1].T, strict=False):
        is_inside = (
            min(share, jackknife_shares.min()) > TOLERANCE and max(share, jackknife_shares.max()) < 1 - TOLERANCE
        )
        values, center = (_logit(jackknife_shares), _logit(share)) if is_inside else (jackknife_shares, share)
        error = reach * float(np.sqrt(((values - values.mean()) ** 2).sum()))
        ends = np.array([center - error, center + error])
        low, high = (1 / (1 + np.exp(-ends)) if is_inside else np.clip(ends, 0, 1)).tolist()
        if high - low > TOLERANCE:
            intervals[name] = (low, high)
    return intervals


def _jackknife_shares(scores: ItemScores) -> Floats:
    """Return the shares of the components that leave out one item each, and then the shares over all items.

    The shape is (items + 1, 4). Shares may be negative. They are NaN without variance. The scores must be complete.
    """
    n = np.append(np.ones(len(scores.items)), 0.0)  # The number of left-out items.
    means = scores.mean - scores.mean.mean()
    items, conditions = means.shape

    def sum_remaining(values: Floats) -> Floats:
        """Return the sums over the remaining items: (items, ...) -> (items + 1, ...)."""
        sums: Floats = values.sum(axis=0) - np.append(values, np.zeros((1, *values.shape[1:])), axis=0)
        return sums

    n_items = items - n
    rows = means.mean(axis=1)
    grand = sum_remaining(rows) / n_items
    item_squares = conditions * (sum_remaining(rows**2) - n_items * grand**2)
    condition_squares = n_items * ((sum_remaining(means) / n_items[:, None] - grand[:, None]) ** 2).sum(axis=1)
    interaction_squares = (
        sum_remaining((means**2).sum(axis=1)) - n_items * conditions * grand**2 - item_squares - condition_squares
    )
    item, condition = item_squares / (n_items - 1), condition_squares / (conditions - 1)
    both = interaction_squares / ((n_items - 1) * (conditions - 1))
    df, within = sum_remaining((scores.n - 1.0).sum(axis=1)), sum_remaining(scores.within.sum(axis=1))
    repetition = np.divide(within, df, out=np.zeros_like(within), where=df > 0)
    repeated = sum_remaining((1 / scores.n).mean(axis=1)) / n_items * repetition
    parts = np.stack([(item - both) / conditions, (condition - both) / n_items, both - repeated, repetition], axis=1)
    total = parts.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(parts, total, out=np.full_like(parts, np.nan), where=total > 0)
    return shares


def _logit(share: Any) -> Any:
    return np.log(share / (1 - share))


def _mean_squares(means: Floats) -> tuple[float, float, float]:
    """Return the mean squares of items, conditions and their interaction, for one value in each cell."""
    items, conditions = means.shape
    grand = means.mean()
    by_item, by_condition = means.mean(axis=1, keepdims=True), means.mean(axis=0, keepdims=True)
    residuals = means - by_item - by_condition + grand
    return (
        conditions * float(((by_item - grand) ** 2).sum()) / (items - 1),
        items * float(((by_condition - grand) ** 2).sum()) / (conditions - 1),
        float((residuals**2).sum()) / ((items - 1) * (conditions - 1)),
    )


def paired_power(difference: float, se: float, items: int, alpha: float = 0.05) -> float:
    """Return the power of the two-sided paired t-test over items to detect this true difference.

    By the noncentral t distribution: J. Cohen (1988), Statistical power analysis, 2nd edition, chapter 2. Without error
    the power is 1.
    """
    from scipy.special import nctdtr

    if se <= 0:
        return 1.0
    critical, noncentrality = student_quantile(1 - alpha, items - 1), abs(difference) / se
    # scipy gives NaN for tails that are too small to compute.
    below, opposite = (np.nan_to_num(nctdtr(items - 1, noncentrality, end)) for end in (critical, -critical))
    return float(1 - below + opposite)


def find_needed_items(components: Components, difference: float, repetitions: int, power: float = 0.8) -> int | None:
    """Return the smallest number of items that detects the difference with this power; None above ten million.

    Raise ValueError unless the difference is positive.
    """
    if difference <= 0:
        raise ValueError(f"no number of items detects a difference of {difference}")

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
