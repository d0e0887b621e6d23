"""A mixed model of the design: fixed effects of conditions, random effects of items and of item x condition.

`fit_factors` lets the answers to an item correlate in any way, and needs more items than effects. This model assumes
that all pairs of conditions correlate equally. In return it has more power with few items, uses incomplete items fully,
and says how large the variances are. scipy is imported inside the functions, because only workers may load it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grading_app.statistics.factorial_model import TermTest, list_terms, select_estimable_terms
from grading_app.statistics.item_scores import Floats, ItemScores

MIN_ITEMS = 3
MAX_CELLS = 1_000_000
BOUNDARY, LARGEST_RATIO = 1e-6, 1e8  # Of the items' variance over the residual variance.


@dataclass(frozen=True, eq=False)
class RandomItems:
    """The fit of a linear model with a random level of each item, by restricted maximum likelihood.

    effects: (columns of x,), with their covariance. item_sd, residual_sd: of the random levels, and of cells within
    items. converged: the likelihood has a maximum. at_boundary: the best variance of items is zero.
    """

    effects: Floats
    covariance: Floats
    item_sd: float
    residual_sd: float
    converged: bool
    at_boundary: bool


@dataclass(frozen=True, slots=True)
class MixedFit:
    """The tests of the terms and the standard deviations of the random effects.

    interaction_sd: of item x condition; without repetitions, it includes their error. repetition_sd: None without
    repetitions. is_balanced: all cells have as many answers, so the model of cell means is that of all answers.
    """

    items: int
    tests: list[TermTest]
    item_sd: float
    interaction_sd: float
    repetition_sd: float | None
    is_balanced: bool
    converged: bool
    at_boundary: bool
    left_out: list[tuple[str, ...]]


def fit_mixed_model(scores: ItemScores, levels: Mapping[str, Sequence[int]]) -> MixedFit | None:
    """Return the fit; None without a varying factor, below MIN_ITEMS items, or for more than MAX_CELLS cells.

    levels: for each factor, the level of each condition, from 0. The model is fitted to cell means. Their residual is
    the interaction and the mean of the repetitions, so the variance of the interaction is the residual variance less
    the mean of s^2 / n, but at least 0. With equal numbers of answers, this is the fit to all answers. The F of a term
    is Wald's over its number of effects. Its denominator has the degrees of freedom within items; for a complete table,
    this is the F of the analysis of variance for repeated measures. J. C. Pinheiro & D. M. Bates (2000), Mixed-effects
    models in S and S-PLUS, sections 1.3 and 2.4.
    """
    has_score = scores.n > 0
    several = has_score.sum(axis=1) > 1
    if int(several.sum()) < MIN_ITEMS or has_score.sum() > MAX_CELLS:
        return None
    present, means = has_score[has_score.any(axis=1)], np.where(has_score, scores.mean, np.nan)[has_score.any(axis=1)]
    terms, left_out = select_estimable_terms(list_terms(levels), present)
    if not terms:
        return None
    x = np.hstack([np.ones((len(scores.conditions), 1)), *[term.columns for term in terms]])
    fit = fit_random_items(means, x)
    if fit is None:
        return None
    df = int(present.sum()) - len(present) - x.shape[1] + 1
    counts = scores.n[has_score]
    repetition_variance = None
    if counts.max() > 1:
        repetition_variance = float(scores.within[has_score].sum() / (counts - 1).sum())
    interaction = fit.residual_sd**2 - (repetition_variance or 0.0) * float((1 / counts).mean())
    from scipy.special import fdtrc

    tests, start = [], 1
    for term in terms:
        q = term.columns.shape[1]
        effects, block = fit.effects[start : start + q], fit.covariance[start : start + q, start : start + q]
        start += q
        f = float(effects @ np.linalg.solve(block, effects)) / q
        tests.append(TermTest(term.factors, f, (q, df), float(fdtrc(q, df, f))))
    return MixedFit(
        len(present),
        tests,
        fit.item_sd,
        math.sqrt(max(0.0, interaction)),
        None if repetition_variance is None else math.sqrt(repetition_variance),
        bool((counts == counts[0]).all()),
        fit.converged,
        fit.at_boundary,
        left_out,
    )


def fit_random_items(cells: Floats, x: Floats) -> RandomItems | None:
    """Return the fit by restricted maximum likelihood; None if the cells do not vary within items.

    cells: (items, conditions), NaN without a score. x: (conditions, columns), the fixed effects, with the constant.
    Given the ratio of the variances of items and of the residual, effects and residual variance have closed forms, so
    only the ratio is searched. Pinheiro & Bates (2000), section 2.2.
    """
    from scipy.optimize import minimize_scalar

    present = (~np.isnan(cells)).astype(np.float64)
    counts, n = present.sum(axis=1), int(present.sum())
    largest = float(np.nanmax(np.abs(cells))) or 1.0
    y = np.where(present > 0, np.nan_to_num(cells) / largest, 0.0)  # Squares of any scores are finite then.
    rows, columns = np.nonzero(present)
    least_squares = np.linalg.lstsq(x[columns], y[rows, columns], rcond=None)[0]
    scale = float(np.std(y[rows, columns] - x[columns] @ least_squares))
    if not scale > 1e-9:
        return None
    y = np.where(present > 0, (y - x @ least_squares) / scale, 0.0)
    products = x.T @ (present.sum(axis=0)[:, None] * x)
    x_sums = present @ x

    def fit(ratio: float) -> tuple[float, Floats, Floats, float]:
        """Return the deviance, the effects, the inverse of their covariance over the variance, and the variance."""
        weights = ratio / (1 + ratio * counts)
        system = products - (weights[:, None] * x_sums).T @ x_sums
        effects = np.linalg.solve(system, x.T @ y.sum(axis=0) - x_sums.T @ (weights * y.sum(axis=1)))
        residuals = np.where(present > 0, y - x @ effects, 0.0)
        variance = float((residuals**2).sum() - weights @ residuals.sum(axis=1) ** 2) / (n - x.shape[1])
        if variance <= 0:
            return math.inf, effects, system, 0.0
        logs = float(np.log1p(ratio * counts).sum()) + float(np.linalg.slogdet(system)[1])
        return (n - x.shape[1]) * math.log(variance) + logs, effects, system, variance

    grid = np.concatenate([[-np.inf], np.linspace(math.log(BOUNDARY), math.log(LARGEST_RATIO), 60)])
    values = [fit(math.exp(log))[0] for log in grid]
    best = int(np.argmin(values))
    ratio = 0.0
    if best > 0:
        ends = grid[max(1, best - 1)], grid[min(60, best + 1)]
        ratio = math.exp(minimize_scalar(lambda log: fit(math.exp(log))[0], bounds=ends, options={"xatol": 1e-9}).x)
    _, effects, system, variance = fit(ratio)
    unit = scale * largest
    return RandomItems(
        np.asarray((effects * scale + least_squares) * largest, dtype=np.float64),
        np.asarray(np.linalg.inv(system) * (variance * unit**2), dtype=np.float64),
        math.sqrt(ratio * variance) * unit,
        math.sqrt(variance) * unit,
        best < len(grid) - 1,
        ratio <= BOUNDARY,
    )
