"""Variance components of scores by item, condition and repetition, the precision of larger designs, and a mixed model.

The mixed model has fixed effects of conditions and random effects of items and of item x condition. `fit_factors` lets
the answers to an item correlate in any way, and needs more items than effects. The mixed model assumes that all pairs
of conditions correlate equally. In return it has more power with few items, uses incomplete items fully, and says how
large the variances are. scipy is imported inside the functions, because only workers may load it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evalsite.lib.stats import student_quantile
from grading_app.statistics.factorial_model import TermTest, list_terms, select_estimable_terms
from grading_app.statistics.item_scores import Floats, ItemScores

MIN_ITEMS = 10  # Intervals of shares need this number of items.
TOLERANCE = 1e-6  # Shares closer than this to 0 or 1 are not transformed.
MIN_FIT_ITEMS = 3
MAX_CELLS = 1_000_000
BOUNDARY, LARGEST_RATIO = 1e-6, 1e8  # Of the items' variance over the residual variance.


@dataclass(frozen=True, slots=True)
class Components:
    """Variances of items, conditions, their interaction, and repetitions within a cell.

    items, conditions: the numbers used. repetitions: the harmonic mean number of scores per cell. repetition: None if
    no cell has two scores; then `interaction` includes it.
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
        """Return the standard error of the difference of two conditions for these numbers of items and repetitions.

        sqrt(2 (interaction + repetition / repetitions) / items): the same items are answered under both conditions.
        """
        return math.sqrt(2 * (self.interaction + (self.repetition or 0.0) / repetitions) / items)

    def half_width(self, items: int, repetitions: int, confidence: float = 0.95) -> float:
        return student_quantile(confidence, items - 1) * self.standard_error(items, repetitions)


def variance_components(scores: ItemScores) -> Components | None:
    """Return the components over the items that have scores in every condition, by the analysis of variance.

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
    share, df = float((1 / n).mean()), int((n - 1).sum())
    repetition = float(within.sum() / df) if df else None
    item_square, condition_square, interaction_square = _mean_squares(means)
    return Components(
        items,
        conditions,
        1 / share,
        max(0.0, (item_square - interaction_square) / conditions),
        max(0.0, (condition_square - interaction_square) / items),
        max(0.0, interaction_square - share * (repetition or 0.0)),
        repetition,
    )


def share_intervals(scores: ItemScores, confidence: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return the intervals of the components' shares of the total by name; empty below MIN_ITEMS complete items.

    The intervals are over items, for these conditions: Student's with the jackknife's standard error of the logit of
    the share. A share that is not positive without one of the items is not transformed. R. G. Miller (1974), "The
    jackknife - a review", Biometrika 61, 1-15, recommends such transformations for variances. Intervals without width
    are excluded.
    """
    complete = scores.select_items(np.asarray((scores.n > 0).all(axis=1)))
    items, conditions = complete.mean.shape
    if items < MIN_ITEMS or conditions < 2:
        return {}
    names = ("item", "condition", "interaction", *(("repetition",) if (complete.n > 1).any() else ()))
    shares = _jackknife_shares(complete)
    reach = student_quantile(confidence, items - 1) * math.sqrt((items - 1) / items)
    intervals = {}
    for name, share, jackknife_shares in zip(names, shares[-1], shares[:-1].T, strict=False):
        is_inside = (
            min(share, jackknife_shares.min()) > TOLERANCE and max(share, jackknife_shares.max()) < 1 - TOLERANCE
        )
        values, center = (_logit(jackknife_shares), _logit(share)) if is_inside else (jackknife_shares, share)
        error = reach * float(np.sqrt(((values - values.mean()) ** 2).sum()))
        ends = np.array([center - error, center + error])
        low, high = (1 / (1 + np.exp(-ends)) if is_inside else np.clip(ends, 0, 1)).tolist()
        if high - low > TOLERANCE:
            intervals[name] = (low, high)
    return intervals


def _jackknife_shares(scores: ItemScores) -> Floats:
    """Return the shares of the components that leave out one item each, and then the shares over all items.

    The shape is (items + 1, 4). Shares may be negative. They are NaN without variance. The scores must be complete.
    """
    n = np.append(np.ones(len(scores.items)), 0.0)  # The number of left-out items.
    means = scores.mean - scores.mean.mean()
    items, conditions = means.shape

    def sum_remaining(values: Floats) -> Floats:
        """Return the sums over the remaining items: (items, ...) -> (items + 1, ...)."""
        sums: Floats = values.sum(axis=0) - np.append(values, np.zeros((1, *values.shape[1:])), axis=0)
        return sums

    n_items = items - n
    rows = means.mean(axis=1)
    grand = sum_remaining(rows) / n_items
    item_squares = conditions * (sum_remaining(rows**2) - n_items * grand**2)
    condition_squares = n_items * ((sum_remaining(means) / n_items[:, None] - grand[:, None]) ** 2).sum(axis=1)
    interaction_squares = (
        sum_remaining((means**2).sum(axis=1)) - n_items * conditions * grand**2 - item_squares - condition_squares
    )
    item, condition = item_squares / (n_items - 1), condition_squares / (conditions - 1)
    both = interaction_squares / ((n_items - 1) * (conditions - 1))
    df, within = sum_remaining((scores.n - 1.0).sum(axis=1)), sum_remaining(scores.within.sum(axis=1))
    repetition = np.divide(within, df, out=np.zeros_like(within), where=df > 0)
    repeated = sum_remaining((1 / scores.n).mean(axis=1)) / n_items * repetition
    parts = np.stack([(item - both) / conditions, (condition - both) / n_items, both - repeated, repetition], axis=1)
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
    residuals = means - by_item - by_condition + grand
    return (
        conditions * float(((by_item - grand) ** 2).sum()) / (items - 1),
        items * float(((by_condition - grand) ** 2).sum()) / (conditions - 1),
        float((residuals**2).sum()) / ((items - 1) * (conditions - 1)),
    )


def paired_power(difference: float, se: float, items: int, alpha: float = 0.05) -> float:
    """Return the power of the two-sided paired t-test over items to detect this true difference.

    By the noncentral t distribution: J. Cohen (1988), Statistical power analysis, 2nd edition, chapter 2. Without error
    the power is 1.
    """
    from scipy.special import nctdtr

    if se <= 0:
        return 1.0
    critical, noncentrality = student_quantile(1 - alpha, items - 1), abs(difference) / se
    # scipy gives NaN for tails that are too small to compute.
    below, opposite = (np.nan_to_num(nctdtr(items - 1, noncentrality, end)) for end in (critical, -critical))
    return float(1 - below + opposite)


def find_needed_items(components: Components, difference: float, repetitions: int, power: float = 0.8) -> int | None:
    """Return the smallest number of items that detects the difference with this power; None above ten million.

    Raise ValueError unless the difference is positive.
    """
    if difference <= 0:
        raise ValueError(f"no number of items detects a difference of {difference}")

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
    """Return the fit; None without a varying factor, below MIN_FIT_ITEMS items, or for more than MAX_CELLS cells.

    levels: for each factor, the level of each condition, from 0. The model is fitted to cell means. Their residual is
    the interaction and the mean of the repetitions. So the variance of the interaction is the residual variance less
    the mean of s^2 / n, but at least 0. With equal numbers of answers, this is the fit to all answers. The F of a term
    is Wald's over its number of effects. Its denominator has the degrees of freedom within items; for a complete table,
    this is the F of the analysis of variance for repeated measures. J. C. Pinheiro & D. M. Bates (2000), Mixed-effects
    models in S and S-PLUS, sections 1.3 and 2.4.
    """
    has_score = scores.n > 0
    several = has_score.sum(axis=1) > 1
    if int(several.sum()) < MIN_FIT_ITEMS or has_score.sum() > MAX_CELLS:
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
