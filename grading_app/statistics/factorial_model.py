"""Factors of a design as main effects and interactions over items, and the interaction of categories and conditions.

In the linear model of model, prompt and sampler, each item has its own level, which least squares removes. The
covariance of the effects is the jackknife's over items, so answers to one item may be correlated in any way. For a
complete table, every test equals that of the multivariate analysis of variance for repeated measures, whose F is exact
for normal differences: H. Hotelling (1931), Annals of Mathematical Statistics 2, 360-378; S. E. Maxwell & H. D. Delaney
(2004), Designing experiments and analyzing data, chapters 13 and 14. A mixed model with a random level for each item
would assume equal correlations of all pairs of conditions. But two prompts of one model correlate more than two models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from evalsite.lib.stats import student_quantile
from grading_app.statistics.intervals import Bounds, bounded_score_interval
from grading_app.statistics.item_scores import Floats

TOLERANCE = 1e-9
RESAMPLES, FEWEST_RESAMPLES, MAX_SUMS = 10_000, 1_000, 400_000_000
MAX_CELLS = 50_000  # Of the resamples that are computed at a time: they fit in a cache of the processor.


@dataclass(frozen=True, slots=True)
class TermTest:
    """The test that all effects of a term are zero. f, df, p: None without a test; `reason` says why.

    factors: the names of the term's factors: one for a main effect, several for an interaction. df: the degrees of
    freedom of numerator and denominator.
    """

    factors: tuple[str, ...]
    f: float | None = None
    df: tuple[int, int] | None = None
    p: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MarginalMean:
    """The mean of a level over items, with equal weights for the levels of other factors. low, high: its interval."""

    factor: str
    level: int
    mean: float
    se: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class FactorFit:
    """The fitted model. items: the number of items with a score. complete: each item has a score in each condition.

    left_out: the factors of terms that the conditions do not determine.
    """

    items: int
    complete: bool
    tests: list[TermTest]
    means: list[MarginalMean]
    left_out: list[tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Term:
    """A main effect or an interaction. columns: (conditions, effects), in effect coding."""

    factors: tuple[str, ...]
    columns: Floats


def fit_factors(
    scores: Floats, levels: Mapping[str, Sequence[int]], bounds: Bounds | None = None, confidence: float = 0.95
) -> FactorFit | None:
    """Return the tests and marginal means of the factors; None without a varying factor or below three items.

    scores: (items, conditions), the mean of each cell, NaN without a score. levels: for each factor, the level of each
    condition, from 0. Terms are excluded if the conditions and items do not determine all of their effects.
    """
    present = ~np.isnan(scores)
    has_several = present.sum(axis=1) > 1
    y, present = scores[present.any(axis=1)], present[present.any(axis=1)]
    if int(has_several.sum()) < 3:
        return None
    terms, left_out = select_estimable_terms(list_terms(levels), present)
    if not terms:
        return None
    x = np.hstack([term.columns for term in terms])
    theta, covariance = _fit(y, present, x)
    positions, start = [], 1
    for term in terms:
        positions.append(range(start, start + term.columns.shape[1]))
        start += term.columns.shape[1]
    n = int(has_several.sum())
    tests = [
        _test_term(term, list(columns), theta, covariance, n) for term, columns in zip(terms, positions, strict=True)
    ]
    means = [
        mean
        for term, columns in zip(terms, positions, strict=True)
        if len(term.factors) == 1
        for mean in _estimate_means(term.factors[0], list(columns), theta, covariance, len(y), bounds, confidence)
    ]
    return FactorFit(len(y), bool(present.all()), tests, means, left_out)


def list_terms(levels: Mapping[str, Sequence[int]]) -> list[Term]:
    """Return main effects, then interactions, in effect coding: the effects of a factor's levels add up to zero."""
    varying = {name: np.asarray(codes) for name, codes in levels.items() if len(set(codes)) > 1}
    coded = {name: _effect_coding(codes) for name, codes in varying.items()}
    terms = []
    for size in range(1, len(coded) + 1):
        for names in combinations(coded, size):
            columns = coded[names[0]]
            for name in names[1:]:
                columns = np.einsum("ki,kj->kij", columns, coded[name]).reshape(len(columns), -1)
            terms.append(Term(names, columns))
    return terms


def _effect_coding(codes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    n_levels = int(codes.max()) + 1
    coding = np.vstack([np.eye(n_levels - 1), -np.ones(n_levels - 1)])
    columns: Floats = coding[codes]
    return columns


def select_estimable_terms(
    terms: list[Term], present: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
) -> tuple[list[Term], list[tuple[str, ...]]]:
    """Return the terms whose effects can be estimated together with all earlier terms, and the names of the others."""
    within = _sum_within_items(present.astype(np.float64))
    selected: list[Term] = []
    left_out: list[tuple[str, ...]] = []
    for term in terms:
        has_parts = all(
            any(part.factors == names for part in selected)
            for size in range(1, len(term.factors))
            for names in combinations(term.factors, size)
        )
        x = np.hstack([selected_term.columns for selected_term in [*selected, term]])
        if has_parts and x.shape[1] < len(x) and np.linalg.matrix_rank(x.T @ within @ x) == x.shape[1]:
            selected.append(term)
        else:
            left_out.append(term.factors)
    return selected, left_out


def _sum_within_items(m: Floats) -> Floats:
    """Return the matrix of sums of products over items, each about the item's mean, of present conditions m."""
    sums: Floats = np.diag(m.sum(axis=0)) - (m / m.sum(axis=1, keepdims=True)).T @ m
    return sums


def _fit(y: Floats, present: np.ndarray[tuple[int, int], np.dtype[np.bool_]], x: Floats) -> tuple[Floats, Floats]:
    """Return (grand mean, effects) and their jackknife covariance.

    The fit without item i follows from the full fit, by one p x p system for each pattern of present conditions.
    """
    m = present.astype(np.float64)
    n, items = m.sum(axis=1), len(y)
    level = np.nansum(y, axis=1) / n
    centered = np.where(present, y - level[:, None], 0.0)
    system = x.T @ _sum_within_items(m) @ x
    beta = np.linalg.solve(system, x.T @ centered.sum(axis=0))
    x_mean = m @ x / n[:, None]
    residuals = centered - m * ((x @ beta)[None, :] - (x_mean @ beta)[:, None])
    scores = residuals @ x
    alpha = level - x_mean @ beta
    shifts = np.zeros_like(scores)
    patterns, pattern_of_item = np.unique(present, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows = np.flatnonzero(pattern_of_item.ravel() == number)
        rest = system - x.T @ _sum_within_items(pattern[None, :].astype(np.float64)) @ x
        shifts[rows] = -np.linalg.lstsq(rest, scores[rows].T, rcond=None)[0].T
    grand = (alpha.sum() - alpha - ((x_mean.sum(axis=0) - x_mean) * shifts).sum(axis=1)) / (items - 1)
    without = np.column_stack([grand, beta + shifts])
    deviations = without - without.mean(axis=0)
    return np.concatenate([[alpha.mean()], beta]), (items - 1) / items * deviations.T @ deviations


def _test_term(term: Term, columns: list[int], theta: Floats, covariance: Floats, n: int) -> TermTest:
    from scipy.special import fdtrc

    q = len(columns)
    if n <= q:
        return TermTest(term.factors, reason=f"needs more than {q} items")
    block, effects = covariance[np.ix_(columns, columns)], theta[columns]
    scale = max(float(np.abs(effects).max()) ** 2, float(np.abs(block).max()))
    if scale < TOLERANCE**2 or np.linalg.matrix_rank(block, tol=TOLERANCE * scale) < q:
        return TermTest(term.factors, reason="no variance of the differences")
    t_squared = float(effects @ np.linalg.solve(block, effects))
    f = t_squared * (n - q) / (q * (n - 1))
    return TermTest(term.factors, f, (q, n - q), float(fdtrc(q, n - q, f)))


def _estimate_means(
    factor: str, columns: list[int], theta: Floats, covariance: Floats, n: int, bounds: Bounds | None, confidence: float
) -> list[MarginalMean]:
    means = []
    for level in range(len(columns) + 1):
        weights = np.zeros(len(theta))
        weights[0] = 1.0
        weights[columns] = -1.0 if level == len(columns) else np.eye(len(columns))[level]
        mean, se = float(weights @ theta), math.sqrt(max(0.0, float(weights @ covariance @ weights)))
        low, high = _interval(mean, se, n, bounds, confidence)
        means.append(MarginalMean(factor, level, mean, se, low, high))
    return means


def _interval(
    mean: float, se: float, n: int, bounds: Bounds | None, confidence: float
) -> tuple[float | None, float | None]:
    if bounds is not None:  # With missing cells, the least-squares mean can lie outside the scale.
        return bounded_score_interval(min(bounds[1], max(bounds[0], mean)), se, n, bounds, confidence)
    if not se:
        return None, None
    reach = student_quantile(confidence, n - 1) * se
    return mean - reach, mean + reach


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
    total, between = float((deviations**2).sum()), float(_sum_squares_between(deviations[order], sizes))
    if total - between <= TOLERANCE * max(1.0, total):
        return None
    df = (len(names) - 1) * (conditions - 1), (items - len(names)) * (conditions - 1)
    resamples = max(FEWEST_RESAMPLES, min(RESAMPLES, MAX_SUMS // deviations.size))
    random, extreme, rows = np.random.default_rng(seed), 1, max(1, MAX_CELLS // deviations.size)
    for start in range(0, resamples, rows):
        orders = np.array([random.permutation(items) for _ in range(min(rows, resamples - start))])
        sums = _sum_squares_between(deviations[orders], sizes)
        extreme += int((sums >= between * (1 - TOLERANCE)).sum())
    f = (between / df[0]) / ((total - between) / df[1])
    return Interaction(items, len(names), conditions, f, df, extreme / (resamples + 1), resamples)


def _sum_squares_between(deviations: Floats, sizes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    """Return the sums of squares between categories. Items are on the last axis but one, in the order of categories."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    sums = np.add.reduceat(deviations, starts, axis=-2)
    return np.asarray((sums**2 / sizes[:, None]).sum(axis=(-2, -1)))
