"""Variance components of scores by item, condition and repetition, and what a larger design would gain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from evalsite.lib.stats.t_interval import student_quantile
from grading_app.statistics.item_scores import Floats, ItemScores

FEWEST = 10  # Items for an interval of a share.
NEAR = 1e-6  # Shares nearer than this to 0 or 1 are not transformed.


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


def share_intervals(scores: ItemScores, confidence: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return the intervals of the components' shares of the total, by name; none below FEWEST complete items.

    They are over items, for these conditions: Student's with the jackknife's standard error of the logit of the share.
    A share that is zero or below without one of the items is not transformed. R. G. Miller (1974), "The jackknife - a
    review", Biometrika 61, 1-15, who recommends such transformations for variances. A share without an interval of some
    width is left out.
    """
    complete = scores.select_items(np.asarray((scores.n > 0).all(axis=1)))
    items, conditions = complete.mean.shape
    if items < FEWEST or conditions < 2:
        return {}
    names = ("item", "condition", "interaction", *(("repetition",) if (complete.n > 1).any() else ()))
    shares = _jackknife_shares(complete)
    reach = student_quantile(confidence, items - 1) * math.sqrt((items - 1) / items)
    found = {}
    for name, whole, without in zip(names, shares[-1], shares[:-1].T, strict=False):
        inside = min(whole, without.min()) > NEAR and max(whole, without.max()) < 1 - NEAR
        values, center = (_logit(without), _logit(whole)) if inside else (without, whole)
        error = reach * float(np.sqrt(((values - values.mean()) ** 2).sum()))
        ends = np.array([center - error, center + error])
        low, high = (1 / (1 + np.exp(-ends)) if inside else np.clip(ends, 0, 1)).tolist()
        if high - low > NEAR:
            found[name] = (low, high)
    return found


def _jackknife_shares(scores: ItemScores) -> Floats:
    """Return the shares of the components (negative ones too) without each item, and then with all.

    (items + 1, 4), for complete scores; NaN where nothing varies.
    """
    n = np.append(np.ones(len(scores.items)), 0.0)  # The number of items that are left out.
    means = scores.mean - scores.mean.mean()
    items, conditions = means.shape

    def left(of_items: Floats) -> Floats:
        """Return the sum over the items that are left: (items, ...) -> (items + 1, ...)."""
        out: Floats = of_items.sum(axis=0) - np.append(of_items, np.zeros((1, *of_items.shape[1:])), axis=0)
        return out

    many = items - n
    rows = means.mean(axis=1)
    grand = left(rows) / many
    of_item = conditions * (left(rows**2) - many * grand**2)
    of_condition = many * ((left(means) / many[:, None] - grand[:, None]) ** 2).sum(axis=1)
    of_both = left((means**2).sum(axis=1)) - many * conditions * grand**2 - of_item - of_condition
    item, condition = of_item / (many - 1), of_condition / (conditions - 1)
    both = of_both / ((many - 1) * (conditions - 1))
    freedom, within = left((scores.n - 1.0).sum(axis=1)), left(scores.within.sum(axis=1))
    repetition = np.divide(within, freedom, out=np.zeros_like(within), where=freedom > 0)
    repeated = left((1 / scores.n).mean(axis=1)) / many * repetition
    parts = np.stack([(item - both) / conditions, (condition - both) / many, both - repeated, repetition], axis=1)
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


def find_needed_items(components: Components, difference: float, repetitions: int, power: float = 0.8) -> int | None:
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
