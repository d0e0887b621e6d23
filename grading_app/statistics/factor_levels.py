"""Levels of a factor compared: a model with another one, each averaged over the same prompts and samplers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from grading_app.statistics.condition_pairs import MAX_PAIRS, ConditionPair, compare_conditions, correct_pair
from grading_app.statistics.fixed_items import FixedItemsChange, estimate_on_these_items
from grading_app.statistics.intervals import Bounds
from grading_app.statistics.item_scores import ItemScores


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
