"""Statistics of items over conditions, to find items that are hard, disputed or unstable, and selections by them.

Every function takes `ItemScores` and returns an array of shape (items,). Undefined values are NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from grading_app.statistics.item_scores import Floats, ItemScores

Mask = NDArray[np.bool_]
TOLERANCE = 1e-9
"""Means that differ by less are equal within the rounding error."""


def item_means(scores: ItemScores) -> Floats:
    """Return the mean of the cell means. Each condition has the same weight, for any number of repetitions."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(scores.n > 0, scores.mean, 0.0).sum(axis=1) / (scores.n > 0).sum(axis=1))


def disagreement(scores: ItemScores) -> Floats:
    """Return the standard deviation of the cell means between conditions; NaN for fewer than two conditions."""
    has_score = scores.n > 0
    count = has_score.sum(axis=1)
    deviations = np.where(has_score, scores.mean - item_means(scores)[:, None], 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 1, np.sqrt((deviations**2).sum(axis=1) / (count - 1)), np.nan)


def repetition_spread(scores: ItemScores) -> Floats:
    """Return the standard deviation within cells, pooled over conditions; NaN without repetitions."""
    freedom = np.where(scores.n > 1, scores.n - 1, 0).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(freedom > 0, np.sqrt(scores.within.sum(axis=1) / freedom), np.nan)


def norm_distance(scores: ItemScores, norms: Floats) -> Floats:
    """Return the mean absolute distance of cell means from the human norm. norms: (items,), NaN for no norm."""
    has_score = scores.n > 0
    distances = np.where(has_score, np.abs(scores.mean - norms[:, None]), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(distances.sum(axis=1) / has_score.sum(axis=1))


def find_differing_items(scores: ItemScores) -> Mask:
    """Return the items whose mean scores differ between conditions."""
    has_score = scores.n > 0
    highest = np.where(has_score, scores.mean, -np.inf).max(axis=1, initial=-np.inf)
    lowest = np.where(has_score, scores.mean, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(highest - lowest > TOLERANCE)


def find_failing_items(scores: ItemScores) -> Mask:
    """Return the items with an answer that has no score or, if answers are right or wrong, is wrong."""
    failed = scores.missing > 0
    if scores.is_binary:
        failed |= (scores.n > 0) & (scores.mean < 1 - TOLERANCE)
    return np.asarray(failed.any(axis=1))


def find_unsolved_items(scores: ItemScores) -> Mask:
    """Return the items that have answers, but no right answer."""
    answered = (scores.n + scores.missing > 0).any(axis=1)
    return np.asarray(answered & ~((scores.n > 0) & (scores.mean > TOLERANCE)).any(axis=1))


def find_items_mostly_answered(scores: ItemScores, condition: int, *, right: bool) -> Mask:
    """Return the items that a condition answers right, or wrong, in more than half of its scored repetitions."""
    column = scores.find_column(condition)
    mean = np.where(scores.n[:, column] > 0, scores.mean[:, column], np.nan)
    with np.errstate(invalid="ignore"):
        return np.asarray(mean > 0.5 + TOLERANCE if right else mean < 0.5 - TOLERANCE)


def find_higher_items(scores: ItemScores, a: int, b: int) -> Mask:
    """Return the items whose mean score is higher in condition a than in b."""
    has_both, change = scores.pair_conditions(a, b)
    is_higher = np.zeros(len(scores.items), dtype=np.bool_)
    is_higher[has_both] = change < -TOLERANCE
    return is_higher


def sort_positions(values: Floats, *, descending: bool = True) -> NDArray[np.intp]:
    """Return the positions sorted by value. Equal values keep their order; items without a value come last."""
    keys = -values if descending else values
    return np.argsort(np.where(np.isnan(keys), np.inf, keys), kind="stable")


SELECTIONS: dict[str, Callable[[ItemScores], Mask]] = {
    "failures": find_failing_items,
    "different": find_differing_items,
    "unsolved": find_unsolved_items,
}
