"""The interaction of categories and conditions: whether differences between conditions depend on the category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grading_app.statistics.item_scores import Floats

RESAMPLES, FEWEST_RESAMPLES, MAX_SUMS = 10_000, 1_000, 400_000_000
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Interaction:
    """The test of an interaction. f, df: of the split-plot analysis of variance. p: by permutation of categories."""

    items: int
    categories: int
    conditions: int
    f: float
    df: tuple[int, int]
    p: float
    resamples: int


def category_interaction(scores: Floats, categories: Sequence[str], seed: int = 0) -> Interaction | None:
    """Return the test of the interaction over the items that have a score in every condition.

    The unit is the item: F compares differences between conditions across categories with those across items. Its p
    comes from random permutations of the categories among items, so it does not assume equal variances and correlations
    of conditions: M. J. Anderson & C. J. F. ter Braak (2003), Journal of Statistical Computation and Simulation 73,
    85-113. Return None for fewer than two categories or conditions, for no more items than categories, or without
    variance within the categories.
    """
    complete = ~np.isnan(scores).any(axis=1)
    deviations = scores[complete] - scores[complete].mean(axis=1, keepdims=True)
    names, category_of_item = np.unique(np.asarray(categories)[complete], return_inverse=True)
    items, conditions = deviations.shape
    if len(names) < 2 or conditions < 2 or items <= len(names):
        return None
    deviations = deviations - deviations.mean(axis=0)
    order = np.argsort(category_of_item, kind="stable")
    sizes = np.bincount(category_of_item)
    total, between = float((deviations**2).sum()), _sum_squares_between(deviations[order], sizes)
    if total - between <= TOLERANCE * max(1.0, total):
        return None
    df = (len(names) - 1) * (conditions - 1), (items - len(names)) * (conditions - 1)
    resamples = max(FEWEST_RESAMPLES, min(RESAMPLES, MAX_SUMS // deviations.size))
    random, extreme = np.random.default_rng(seed), 1
    for _ in range(resamples):
        extreme += _sum_squares_between(deviations[random.permutation(items)], sizes) >= between * (1 - TOLERANCE)
    f = (between / df[0]) / ((total - between) / df[1])
    return Interaction(items, len(names), conditions, f, df, extreme / (resamples + 1), resamples)


def _sum_squares_between(
    deviations: Floats, sizes: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]]
) -> float:
    """Return the sum of squares between categories. Rows are in the order of the categories."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    sums = np.add.reduceat(deviations, starts, axis=0)
    return float((sums**2 / np.asarray(sizes)[:, None]).sum())
