"""Differences on these items alone, of two conditions or of two levels of a factor: only the repetitions are samples.

`estimate_change` answers another question: how much two conditions differ on items like these. There the items are a
sample, and repetitions only make each item's mean more precise. Levels of a factor, such as two models, are each
averaged over the same prompts and samplers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evalsite.lib.stats import student_quantile
from grading_app.statistics.condition_pairs import MAX_PAIRS, ConditionPair, compare_conditions, correct_pair
from grading_app.statistics.intervals import Bounds
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


@dataclass(frozen=True, slots=True)
class LevelLead:
    """The two levels of a factor with the highest means, as a comparison of the first with the second.

    first, second: the key of one condition of each level. levels: the number of levels. averaged: the number of
    conditions of each level. means: of the first and of the second level. pairs: of levels; `p` is after Holm's
    correction over them, and None for more than MAX_PAIRS pairs. fixed: the difference on these items alone; None for
    levels of several conditions.
    """

    first: int
    second: int
    levels: int
    averaged: int
    means: tuple[float, float]
    pairs: int
    pair: ConditionPair
    p: float | None
    fixed: FixedItemsChange | None = None

    def verdict(self, level: float) -> int:
        """Return 1 if the first level is significantly higher, -1 if it is lower, else 0."""
        return 0 if self.p is None or self.p >= level else 1 if self.pair.change.mean > 0 else -1


def pool_levels(scores: ItemScores, cells: Mapping[int, tuple[int, ...]], factor: int) -> tuple[ItemScores, int] | None:
    """Return the scores with one column for each level of a factor, and the number of conditions behind each column.

    cells: the levels of all factors, by condition. factor: its place in them. A combination of the other factors counts
    if it occurs with every level, and an item if it has scores in all these conditions. So a difference of levels is
    one of like with like. Each condition has the same weight. A column has the key of its first condition.
    None if no combination is complete.
    """
    keys = [key for key in scores.conditions.tolist() if key in cells]
    levels = list(dict.fromkeys(cells[key][factor] for key in keys))
    of_others: dict[tuple[int, ...], dict[int, int]] = {}
    for key in keys:
        others = (*cells[key][:factor], *cells[key][factor + 1 :])
        of_others.setdefault(others, {})[cells[key][factor]] = key
    complete = [found for found in of_others.values() if len(found) == len(levels)]
    if not complete:
        return None
    used = scores.select_conditions([found[level] for found in complete for level in levels])
    common = used.select_items(np.all(used.n > 0, axis=1))
    columns = [common.select_conditions([found[level] for found in complete]).pool() for level in levels]
    table = replace(
        common,
        conditions=np.concatenate([column.conditions for column in columns]),
        n=np.concatenate([column.n for column in columns], axis=1),
        missing=np.concatenate([column.missing for column in columns], axis=1),
        mean=np.concatenate([column.mean for column in columns], axis=1),
        within=np.concatenate([column.within for column in columns], axis=1),
    )
    return table, len(complete)


def find_level_lead(
    scores: ItemScores,
    cells: Mapping[int, tuple[int, ...]],
    factor: int,
    bounds: Bounds | None,
    order: Sequence[int] | None = None,
) -> LevelLead | None:
    """Return the comparison of the two highest levels of a factor; None without two levels that can be compared.

    order: two keys of columns of `pool_levels` to compare, in place of the highest.
    """
    pooled = pool_levels(scores, cells, factor)
    if pooled is None or len(pooled[0].conditions) < 2 or not len(pooled[0].items):
        return None
    table, averaged = pooled
    keys = table.conditions.tolist()
    means = dict(zip(keys, table.mean.mean(axis=0).tolist(), strict=True))
    first, second = order or sorted(keys, key=lambda key: -round(means[key], 12))[:2]
    pair = compare_conditions(table, second, first, bounds)
    if pair is None:
        return None
    pairs = len(keys) * (len(keys) - 1) // 2
    corrected = correct_pair(table, second, first, bounds) if 1 < pairs <= MAX_PAIRS else None
    p = corrected.p if corrected else pair.change.p if pairs == 1 else None
    span = bounds[1] - bounds[0] if bounds else None
    fixed = estimate_on_these_items(table, second, first, span) if averaged == 1 else None
    return LevelLead(first, second, len(keys), averaged, (means[first], means[second]), pairs, pair, p, fixed)
