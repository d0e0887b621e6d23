"""Intraclass correlations: the share of the variance of ratings that lies between units; reliability of repetitions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grading_app.statistics.intervals import Spread
from grading_app.statistics.item_scores import ItemScores
from grading_app.statistics.measures import Coefficient, divide
from grading_app.statistics.ratings import Floats, Ratings

Form = Literal["1,1", "2,1", "3,1", "1,k", "2,k", "3,k"]
ROUNDING = 1e-24
FORMS: tuple[Form, ...] = ("1,1", "2,1", "3,1", "1,k", "2,k", "3,k")


@dataclass(frozen=True, eq=False)
class MeanSquares:
    """The mean squares of the two-way analysis of variance of n units x k raters. All but k are (resamples,)."""

    n: Floats
    k: int
    rows: Floats  # between units
    within: Floats  # within units: raters and residual together
    columns: Floats  # between raters
    error: Floats  # residual


def intraclass_correlation(ratings: Ratings, form: Form) -> Coefficient:
    """Return ICC(1,1) to ICC(3,k): the correlation for a single rater (1) or for the mean of all k raters (k).

    1: each unit has different raters. 2: the raters are a sample of all raters, and their level counts as disagreement.
    3: the raters are all raters of interest, and their level does not count (consistency). The mean squares are R
    between units, W within units, C between raters and E residual, for n units:
    (1,1) = (R - W) / (R + (k - 1) W)                           (1,k) = (R - W) / R
    (2,1) = (R - E) / (R + (k - 1) E + k (C - E) / n)           (2,k) = (R - E) / (R + (C - E) / n)
    (3,1) = (R - E) / (R + (k - 1) E)                           (3,k) = (R - E) / R
    Intervals come from the F distribution. Intervals of (2,1) use Satterthwaite's degrees of freedom. Intervals of
    (2,k) follow from these by Spearman and Brown's formula. P. E. Shrout & J. L. Fleiss (1979), Psychological Bulletin
    86, 420-428; K. O. McGraw & S. P. Wong (1996), Psychological Methods 1, 30-46 (and 390).
    Only units that every rater rated are used. The correlation is undefined if the denominator is not positive: below
    two units, and for the mean of all raters without variance between units. Raise ValueError for a single rater, or
    for an unknown form.
    """
    if form not in FORMS:
        raise ValueError(f"an intraclass correlation is one of {', '.join(FORMS)}, not {form}")
    if len(ratings.raters) < 2:
        raise ValueError("an intraclass correlation needs at least two raters")
    used = ratings.drop_incomplete()

    def compute(times: Floats) -> Floats:
        return _correlation(form, mean_squares(used, times))

    def spread(confidence: float) -> Spread | None:
        return _spread(form, mean_squares(used, used.times[None]), confidence)

    return Coefficient(f"ICC({form})", used, ratings.n_units - used.n_units, compute, spread, (-math.inf, 1.0))


def mean_squares(complete: Ratings, times: Floats) -> MeanSquares:
    """Return the analysis of variance with each unit weighted by `times`, (resamples, units)."""
    values = complete.values - complete.values.mean()
    n, k = times.sum(axis=1), len(complete.raters)
    units, raters = values.mean(axis=1), times @ values / n[:, None]
    mean = raters.mean(axis=1, keepdims=True)
    # Sums below the rounding error become zero, because noise would give an F of billions.
    rounding = ROUNDING * np.abs(complete.values).max() ** 2 * n * k
    rows = _drop_rounding_errors(rounding, k * (times * (units - mean) ** 2).sum(axis=1))
    within = _drop_rounding_errors(rounding, times @ ((values - units[:, None]) ** 2).sum(axis=1))
    columns = _drop_rounding_errors(rounding, n * ((raters - mean) ** 2).sum(axis=1))
    error = _drop_rounding_errors(np.maximum(rounding, 1e-12 * within), within - columns)
    df = np.maximum(n - 1, 1)
    return MeanSquares(n, k, rows / df, within / (n * (k - 1)), columns / (k - 1), error / (df * (k - 1)))


def _drop_rounding_errors(rounding: Floats, squares: Floats) -> Floats:
    return np.where(squares > rounding, squares, 0.0)


def _correlation(form: Form, ms: MeanSquares) -> Floats:
    noise = ms.within if form[0] == "1" else ms.error
    denominator = ms.rows if form[2] == "k" else ms.rows + (ms.k - 1) * noise
    if form[0] == "2":
        denominator = denominator + (1 if form[2] == "k" else ms.k) * (ms.columns - ms.error) / ms.n
    return divide(ms.rows - noise, np.where(ms.n > 1, denominator, 0.0))


def _spread(form: Form, ms: MeanSquares, confidence: float) -> Spread | None:
    n, k = float(ms.n[0]), ms.k
    if n < 2:
        return None
    rows, within, error = float(ms.rows[0]), float(ms.within[0]), float(ms.error[0])
    if form[0] == "2" and rows == error == 0:
        return None  # Each rater rates all units equally: the estimate is 0 without variance.
    columns = float(ms.columns[0])
    if {"1": within, "2": max(columns, error), "3": error}[form[0]] == 0:
        return None  # All ratings agree, so both limits would be 1. Other units may differ.
    if form[0] == "2":
        low, high = _limits_of_absolute_agreement(ms, confidence)
    elif form[0] == "1":
        low, high = _limits_by_ratio(rows, within, (n - 1, n * (k - 1)), k, confidence)
    else:
        low, high = _limits_by_ratio(rows, error, (n - 1, (n - 1) * (k - 1)), k, confidence)
    if form[2] == "k":
        low, high = (k * end / (1 + (k - 1) * end) for end in (low, high))
    return Spread(None, low, high, "F distribution (Shrout & Fleiss 1979)")


def _limits_by_ratio(
    rows: float, noise: float, df: tuple[float, float], k: int, confidence: float
) -> tuple[float, float]:
    """Return the limits of (1,1) and (3,1): (F / f - 1) / (F / f + k - 1) for F = rows / noise.

    The formula is written without a division by noise.
    """
    divisors = _quantile(confidence, *df), 1 / _quantile(confidence, df[1], df[0])
    low, high = ((rows - f * noise) / (rows + (k - 1) * f * noise) for f in divisors)
    return low, high


def _limits_of_absolute_agreement(ms: MeanSquares, confidence: float) -> tuple[float, float]:
    """Return the limits of (2,1): Shrout & Fleiss, p. 424, with F_J E in place of C to avoid a division by E."""
    n, k, rho = float(ms.n[0]), ms.k, float(_correlation("2,1", ms)[0])
    rows, columns, error = float(ms.rows[0]), float(ms.columns[0]), float(ms.error[0])
    rater_part, error_part = k * rho * columns, (n * (1 + (k - 1) * rho) - k * rho) * error
    df = (k - 1) * (n - 1) * (rater_part + error_part) ** 2 / ((n - 1) * rater_part**2 + error_part**2)
    noise = k * columns + (k * n - k - n) * error
    upper, lower = _quantile(confidence, n - 1, df), _quantile(confidence, df, n - 1)
    low = n * (rows - upper * error) / (upper * noise + n * rows)
    high = n * (lower * rows - error) / (noise + n * lower * rows)
    return low, high


def _quantile(confidence: float, df: float, other: float) -> float:
    """Return the F that a value of the F distribution does not exceed with probability (1 + confidence) / 2."""
    from scipy.special import fdtri  # Not scipy.stats, which costs a web process 70 MB.

    return float(fdtri(df, other, (1 + confidence) / 2))


@dataclass(frozen=True, slots=True)
class Repeatability:
    """The reliability of a condition. single: of one score, ICC(1,1). repetitions: the mean number of scores, n0."""

    single: float
    items: int
    repetitions: float

    def reliability_of_mean(self, repetitions: float) -> float:
        return spearman_brown(self.single, repetitions)


def spearman_brown(single: float, repetitions: float) -> float:
    """Return the reliability of the mean of k scores: k r / (1 + (k - 1) r).

    C. Spearman (1910), British Journal of Psychology 3, 271-295; W. Brown (1910), ibid. 296-322. A single reliability
    below zero counts as zero, because repetitions cannot make it worse.
    """
    r = max(0.0, single)
    return repetitions * r / (1 + (repetitions - 1) * r)


def repeatability(scores: ItemScores, condition: int) -> Repeatability | None:
    """Return the reliability of a single score of one condition over its items; None if it is undefined.

    ICC(1,1) = (B - W) / (B + (n0 - 1) W) by the one-way analysis of variance, with items as groups: P. E. Shrout &
    J. L. Fleiss (1979), Psychological Bulletin 86, 420-428. For unequal numbers of scores, n0 is
    (N - sum n_i^2 / N) / (G - 1): S. R. Searle (1971), Linear Models, ch. 9. It needs two items and one repeated item.
    """
    column = scores.find_column(condition)
    has_score = scores.n[:, column] > 0
    n, means, within = (
        scores.n[has_score, column].astype(np.float64),
        scores.mean[has_score, column],
        scores.within[has_score, column],
    )
    total, groups = float(n.sum()), len(n)
    if groups < 2 or total <= groups:
        return None
    grand = float((n * means).sum()) / total
    between = float((n * (means - grand) ** 2).sum()) / (groups - 1)
    within_square = float(within.sum()) / (total - groups)
    mean_size = (total - float((n**2).sum()) / total) / (groups - 1)
    denominator = between + (mean_size - 1) * within_square
    return Repeatability((between - within_square) / denominator, groups, mean_size) if denominator > 0 else None
