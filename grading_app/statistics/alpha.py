"""Krippendorff's alpha, for any number of raters and any scale, with missing ratings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from grading_app.statistics.measures import Coefficient, divide
from grading_app.statistics.ranks import Ranking
from grading_app.statistics.ratings import Floats, Ratings

Level = Literal["nominal", "ordinal", "interval", "ratio"]
ROUNDING = 1e-24


def krippendorff_alpha(ratings: Ratings, level: Level) -> Coefficient:
    """Return 1 - D_o / D_e: the disagreement within units over the disagreement among all ratings of all units.

    D_o = 1/n sum over units of 1/(m_u - 1) sum over ordered pairs of its m_u ratings of delta^2,
    D_e = 1/(n (n - 1)) sum over ordered pairs of all n ratings of delta^2, with a distance delta^2 of c and k
    nominal: 1 if c != k; interval: (c - k)^2; ratio: ((c - k) / (c + k))^2;
    ordinal: (sum of n_g for g from c to k - (n_c + n_k) / 2)^2, where n_g ratings are g: the distance of mid-ranks.
    K. Krippendorff (2011), "Computing Krippendorff's alpha-reliability", University of Pennsylvania.
    Units with fewer than two ratings are excluded, because they have no pairs. Alpha is undefined if all ratings are
    the same. A ratio scale may have a few thousand distinct ratings, because their distances form a table. Raise
    ValueError for negative ratings on a ratio scale.
    """
    if level == "ratio" and (ratings.values < 0).any():
        raise ValueError("a ratio scale has no negative ratings")
    used = ratings.with_at_least(2)
    build = _compute_by_distance if level in ("nominal", "ratio") else _compute_by_position
    left_out = ratings.n_units - used.n_units
    return Coefficient(f"Krippendorff's alpha, {level}", used, left_out, build(used, level), bounds=(-1.0, 1.0))


def _compute_by_distance(used: Ratings, level: Level) -> Callable[[Floats], Floats]:
    """Return alpha for scales whose distances depend only on the categories (nominal, ratio)."""
    categories, counts = used.categories, used.counts
    distances = 1 - np.eye(len(categories))
    if level == "ratio":
        sums, differences = np.add.outer(categories, categories), np.subtract.outer(categories, categories)
        distances = np.divide(differences, sums, out=np.zeros_like(sums), where=sums > 0) ** 2
    within = ((counts @ distances) * counts).sum(axis=1) / (used.per_unit - 1)

    def compute(times: Floats) -> Floats:
        pooled = times @ counts
        n = pooled.sum(axis=1)
        return 1 - divide((n - 1) * (times @ within), ((pooled @ distances) * pooled).sum(axis=1))

    return compute


def _compute_by_position(used: Ratings, level: Level) -> Callable[[Floats], Floats]:
    """Return alpha for scales whose distances are squared differences: of ratings, or of their mid-ranks (ordinal)."""
    unit, sizes = np.nonzero(used.given)[0], used.per_unit
    starts = np.cumsum(sizes) - sizes
    values = used.values[used.given]
    centred, ranking = (values - values.sum() / max(1, values.size))[None, :], Ranking(values)

    def compute(times: Floats) -> Floats:
        weights = times[:, unit]
        positions = ranking.midranks(weights) if level == "ordinal" else centred
        means = np.add.reduceat(positions, starts, axis=1) / sizes
        squares = np.add.reduceat((positions - means[:, unit]) ** 2, starts, axis=1)  # (resamples, units)
        within = squares * sizes / (sizes - 1)
        n, spread = weights.sum(axis=1), _sum_squares(positions, weights)
        return 1 - divide((n - 1) * (times * within).sum(axis=1), n * spread)

    return compute


def _sum_squares(positions: Floats, weights: Floats) -> Floats:
    """Return sums of squares about the weighted mean: (resamples,). Values below the rounding error become zero."""
    means = (weights * positions).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    squares = (weights * (positions - means) ** 2).sum(axis=1)
    return np.where(squares > ROUNDING * (weights * positions**2).sum(axis=1), squares, 0.0)
