"""The difference of two conditions on these items alone: the items are fixed, only their repetitions are samples.

`estimate_change` answers another question: how much two conditions differ on items like these. There the items are a
sample, and repetitions only make each item's mean more precise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from evalsite.lib.stats.t_interval import student_quantile
from grading_app.statistics.item_scores import ItemScores

ITEMS_LIKE_THESE = "Interval and p: on items like these. The items are a sample, which repetitions make more precise."
THESE_ITEMS = (
    "On these items: the items are fixed, and only repetitions are samples. Welch's t with the variance "
    "Σ s²/n of all cells over (number of items)², each item's mean being that of its conditions (Cochran 1977, 5.4)."
)
TOO_FEW_REPETITIONS = "needs two answers to each common item under both conditions"
NO_VARIANCE = "all repetitions of each item agree, so their variance is unknown"


@dataclass(frozen=True, slots=True)
class FixedItemsChange:
    """The mean of B - A over fixed items. p: two-sided, that both conditions have the same mean on these items.

    t, df: of the test. Without an interval, `reason` says why.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    t: float | None = None
    df: float | None = None
    reason: str = ""


def estimate_on_these_items(
    scores: ItemScores, a: int, b: int, span: float | None = None, confidence: float = 0.95
) -> FixedItemsChange | None:
    """Return the difference over the common items; None without common items. span: the length of the scale."""
    sides = scores.select_conditions([a]), scores.select_conditions([b])
    return estimate_sides_on_these_items(*sides, span, confidence)


def estimate_sides_on_these_items(
    a: ItemScores, b: ItemScores, span: float | None = None, confidence: float = 0.95
) -> FixedItemsChange | None:
    """Return the difference of two sides of several conditions over the same items, in the same rows.

    An item's mean on a side is that of the means of its K conditions, so that each has the same weight. Each cell of an
    item and a condition has its own mean and its own variance s^2 over n repetitions. The variance of the mean
    difference is the sum of s^2 / n / K^2 over cells, over G^2 for G items: items and conditions are strata that are
    all observed, so they add no error. The t has Satterthwaite's degrees of freedom: W. G. Cochran (1977), Sampling
    techniques, section 5.4. For one item, it is Welch's test. In simulations it covers 93 % or more, also shares at .99
    (`benchmarks/coverage.py`).
    """
    from scipy.special import stdtr

    has_both = np.asarray((a.n > 0).any(axis=1) & (b.n > 0).any(axis=1))
    if not has_both.any():
        return None
    a, b = a.select_items(has_both), b.select_items(has_both)
    mean = float((b.pool().mean - a.pool().mean).mean())
    n_conditions = [np.broadcast_to((side.n > 0).sum(axis=1, keepdims=True), side.n.shape) for side in (a, b)]
    weights = 1 / (np.hstack(n_conditions) * len(a.items))
    n, within = np.hstack([a.n, b.n]), np.hstack([a.within, b.within])
    weights, n, within = weights[n > 0], n[n > 0], within[n > 0]
    if (n < 2).any():
        return FixedItemsChange(mean, reason=TOO_FEW_REPETITIONS)
    parts = within / (n - 1) / n * weights**2
    variance = float(parts.sum())
    if variance <= 0:
        return FixedItemsChange(mean, reason=NO_VARIANCE)
    shares = parts / variance  # Squares of tiny parts would vanish.
    t, df = mean / math.sqrt(variance), 1 / float((shares**2 / (n - 1)).sum())
    reach = student_quantile(confidence, df) * math.sqrt(variance)
    low, high = (mean - reach, mean + reach) if span is None else (max(-span, mean - reach), min(span, mean + reach))
    return FixedItemsChange(mean, low, high, float(2 * stdtr(df, -abs(t))), t, df)
