"""Which items are hard, disputed or unstable: values of one item over its conditions, and selections by them.

Every function takes `ItemScores` and returns an array of shape (items,). NaN means that the value is not defined.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from grading_app.statistics.item_scores import Floats, ItemScores

Chosen = NDArray[np.bool_]
SAME = 1e-9
"""Means that differ by less are the same; rounding is smaller than this."""


def item_means(scores: ItemScores) -> Floats:
    """Return the mean of the cell means. Each condition counts once, however many repetitions it has."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(scores.n > 0, scores.mean, 0.0).sum(axis=1) / (scores.n > 0).sum(axis=1))


def disagreement(scores: ItemScores) -> Floats:
    """Return the standard deviation of the cell means between the conditions; NaN with fewer than two."""
    has_score = scores.n > 0
    count = has_score.sum(axis=1)
    deviations = np.where(has_score, scores.mean - item_means(scores)[:, None], 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 1, np.sqrt((deviations**2).sum(axis=1) / (count - 1)), np.nan)


def repetition_spread(scores: ItemScores) -> Floats:
    """Return the standard deviation within the cells, pooled over conditions; NaN if nothing was repeated."""
    freedom = np.where(scores.n > 1, scores.n - 1, 0).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(freedom > 0, np.sqrt(scores.within.sum(axis=1) / freedom), np.nan)


def norm_distance(scores: ItemScores, norms: Floats) -> Floats:
    """Return the mean absolute distance of the cell means from the human norm. norms: (items,), NaN without one."""
    has_score = scores.n > 0
    distances = np.where(has_score, np.abs(scores.mean - norms[:, None]), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(distances.sum(axis=1) / has_score.sum(axis=1))


def find_differing_items(scores: ItemScores) -> Chosen:
    """Return the items that two conditions score differently."""
    has_score = scores.n > 0
    highest = np.where(has_score, scores.mean, -np.inf).max(axis=1, initial=-np.inf)
    lowest = np.where(has_score, scores.mean, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(highest - lowest > SAME)


def find_failing_items(scores: ItemScores) -> Chosen:
    """Return the items with an answer that has no score or, if answers are right or wrong, that is wrong."""
    failed = scores.missing > 0
    if scores.is_binary:
        failed |= (scores.n > 0) & (scores.mean < 1 - SAME)
    return np.asarray(failed.any(axis=1))


def find_unsolved_items(scores: ItemScores) -> Chosen:
    """Return the items that have answers, none of which is right."""
    answered = (scores.n + scores.missing > 0).any(axis=1)
    return np.asarray(answered & ~((scores.n > 0) & (scores.mean > SAME)).any(axis=1))


def find_items_mostly_answered(scores: ItemScores, condition: int, *, right: bool) -> Chosen:
    """Return the items that a condition answers right, or wrong, in more than half of its scored repetitions."""
    column = scores.find_column(condition)
    mean = np.where(scores.n[:, column] > 0, scores.mean[:, column], np.nan)
    with np.errstate(invalid="ignore"):
        return np.asarray(mean > 0.5 + SAME if right else mean < 0.5 - SAME)


def find_higher_items(scores: ItemScores, a: int, b: int) -> Chosen:
    """Return the items whose mean score is higher in condition a than in b."""
    both, change = scores.pair_conditions(a, b)
    chosen = np.zeros(len(scores.items), dtype=np.bool_)
    chosen[both] = change < -SAME
    return chosen


def sort_positions(values: Floats, *, descending: bool = True) -> NDArray[np.intp]:
    """Return the positions sorted by value. Equal values keep their order; items without a value come last."""
    keys = -values if descending else values
    return np.argsort(np.where(np.isnan(keys), np.inf, keys), kind="stable")


SELECTIONS: dict[str, Callable[[ItemScores], Chosen]] = {
    "failures": find_failing_items,
    "different": find_differing_items,
    "unsolved": find_unsolved_items,
}
