"""Simulated designs for the intervals of measures of agreement, judges and pairs. `coverage.py` runs them.

All intervals are over items for fixed raters. Other raters would differ more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.coverage_scores import NONE, Draw, Ends, Truths, get_ends
from grading_app.results.raters.agreement_report import restrict_to_scale
from grading_app.results.raters.reference_report import compare_with_references
from grading_app.statistics.agreement_coefficients import (
    cohens_kappa,
    fleiss_kappa,
    kendalls_w,
    krippendorff_alpha,
    percent_agreement,
)
from grading_app.statistics.bootstrap import bootstrap
from grading_app.statistics.bradley_terry import Comparisons, PairTally, bradley_terry_by_items
from grading_app.statistics.concordance import lins_concordance
from grading_app.statistics.intraclass import Form, intraclass_correlation
from grading_app.statistics.judge_bias import (
    compute_comparison,
    corrected_mean,
    judge_bias,
    judge_slope,
    limits_of_agreement,
)
from grading_app.statistics.measures import Coefficient
from grading_app.statistics.ratings import Ratings

RESAMPLES = 200
CATEGORIES = (0.6, 0.3, 0.1)
LEVELS = np.array([-0.4, 0.0, 0.4])  # The shift of each of three raters.


def get_interval_ends(coefficient: Coefficient) -> Ends:
    return get_ends(bootstrap(coefficient, seed=1, resamples=RESAMPLES))


def draw_names(draw: Draw, sure: float, items: int, raters: int = 3, shares: tuple[float, ...] = CATEGORIES) -> Ratings:
    """Return categories by raters who see the item's own category with probability `sure`, and guess otherwise.

    Kappa and nominal alpha of any two of them are sure^2.
    """
    own = draw.choice(len(shares), p=shares, size=(items, 1))
    guesses = draw.choice(len(shares), p=shares, size=(items, raters))
    return Ratings.from_table(np.where(draw.random((items, raters)) < sure, own, guesses).astype(float))


def draw_numbers(draw: Draw, noise: float, items: int, levels: Any = 0.0, raters: int = 3) -> Ratings:
    """Return normal ratings with a variance of 1 between items."""
    return Ratings.from_table(draw.standard_normal((items, 1)) + levels + noise * draw.standard_normal((items, raters)))


def simulate_bias(draw: Draw, items: int, repetitions: int) -> Truths:
    def once() -> Ends:
        judge = draw.normal(0.3, 0.5, (items, 1)) + draw.normal(0, 0.5, (items, repetitions))
        table = np.stack([judge.ravel(), np.zeros(items * repetitions)], axis=1)
        return get_ends(
            judge_bias(
                Ratings.from_table(table), 0, {at: at // repetitions for at in range(items * repetitions)}
            ).result()
        )

    yield 0.3, once


def simulate_alpha(draw: Draw, items: int, repetitions: int) -> Truths:
    for noise in (1.0, 0.5):
        yield (
            1 / (1 + noise**2),
            lambda noise=noise: get_interval_ends(krippendorff_alpha(draw_numbers(draw, noise, items), "interval")),
        )
    for sure in (0.5, 0.9):
        yield sure**2, lambda sure=sure: get_interval_ends(krippendorff_alpha(draw_names(draw, sure, items), "nominal"))


def simulate_rare_category(measure: Callable[[Ratings], Coefficient], raters: int) -> Callable[..., Truths]:
    """Return truths of categories of which one is rare: one label in ten."""

    def truths(draw: Draw, items: int, repetitions: int) -> Truths:
        for agreement in (0.5, 0.9):
            yield (
                agreement,
                lambda agreement=agreement: get_interval_ends(
                    measure(draw_names(draw, agreement**0.5, items, raters, (0.9, 0.1)))
                ),
            )

    return truths


def simulate_cohens_kappa(draw: Draw, items: int, repetitions: int) -> Truths:
    for sure in (0.3**0.5, 0.7**0.5):
        for weights in ("none", "quadratic"):
            yield (
                sure**2,
                lambda sure=sure, weights=weights: get_interval_ends(
                    cohens_kappa(draw_names(draw, sure, items, 2), weights)
                ),
            )


def simulate_fleiss_kappa(draw: Draw, items: int, repetitions: int) -> Truths:
    for sure in (0.5, 0.9):
        yield sure**2, lambda sure=sure: get_interval_ends(fleiss_kappa(draw_names(draw, sure, items)))


def simulate_percent_agreement(draw: Draw, items: int, repetitions: int) -> Truths:
    for shares, sure in ((CATEGORIES, 0.5), (CATEGORIES, 0.9), ((0.95, 0.05), 0.9)):
        by_chance = sum(share**2 for share in shares)
        yield (
            sure**2 + (1 - sure**2) * by_chance,
            lambda shares=shares, sure=sure: get_interval_ends(
                percent_agreement(draw_names(draw, sure, items, 3, shares))
            ),
        )


def simulate_icc(form: Form) -> Callable[[Draw, int, int], Truths]:
    def truths(draw: Draw, items: int, repetitions: int) -> Truths:
        levels = LEVELS if form[0] != "1" else 0.0
        between = float(LEVELS.var(ddof=1)) if form[0] == "2" else 0.0
        for noise in (1.0, 0.5):
            single = 1 / (1 + between + noise**2)
            truth = 3 * single / (1 + 2 * single) if form[2] == "k" else single
            yield (
                truth,
                lambda noise=noise: get_interval_ends(
                    intraclass_correlation(draw_numbers(draw, noise, items, levels), form)
                ),
            )

    return truths


def simulate_kendalls_w(draw: Draw, items: int, repetitions: int) -> Truths:
    for noise in (1.0, 0.5):
        rho = 6 / np.pi * np.arcsin(1 / (1 + noise**2) / 2)
        yield (1 + 2 * rho) / 3, lambda noise=noise: get_interval_ends(kendalls_w(draw_numbers(draw, noise, items)))


def simulate_lins_concordance(draw: Draw, items: int, repetitions: int) -> Truths:
    for shift in (0.0, 0.5):
        levels = np.array([shift, 0.0])
        yield (
            2 / (2.5 + shift**2),
            lambda levels=levels: get_interval_ends(lins_concordance(draw_numbers(draw, 0.5, items, levels, 2))),
        )


def simulate_deming_slope(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield Deming's slope of a judge over one person, with equal errors."""
    for noise in (0.3, 0.6):

        def once(noise: float = noise) -> Ends:
            person = draw.standard_normal(items)
            table = np.stack([0.8 * person, person], axis=1) + noise * draw.standard_normal((items, 2))
            return get_interval_ends(judge_slope(Ratings.from_table(table), 0))

        yield 0.8, once


def simulate_limits_of_agreement(draw: Draw, items: int, repetitions: int) -> Truths:
    for side, truth in (("low", 0.3 - 1.96), ("high", 0.3 + 1.96)):

        def once(side: str = side) -> Ends:
            table = np.stack([draw.normal(0.3, 1, items), np.zeros(items)], axis=1)
            return get_ends(
                getattr(limits_of_agreement(Ratings.from_table(table), 0, seed=1, resamples=RESAMPLES), side)
            )

        yield truth, once


def simulate_judge_against_people(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield the agreement of a judge with three people, the agreement of the people, and the difference."""
    for measure in ("concordance", "same answer"):
        comparisons = compute_comparison(_draw_judge_and_people(draw, 40_000), 0, measure)
        for at, comparison in enumerate(comparisons):
            yield (
                comparison.estimate or 0.0,
                lambda measure=measure, at=at: get_interval_ends(
                    compute_comparison(_draw_judge_and_people(draw, items), 0, measure)[at]
                ),
            )


def _draw_judge_and_people(draw: Draw, items: int) -> Ratings:
    """Return ratings from 1 to 7 by a judge and three people."""
    quality = draw.normal(4, 1.3, (items, 1))
    noise = draw.standard_normal((items, 4)) * np.array([1.0, 0.8, 0.8, 0.8])
    return Ratings.from_table((quality + noise + np.array([0.3, 0, 0, 0])).round().clip(1, 7))


def simulate_corrected_mean(share: bool, field: str = "corrected") -> Callable[[Draw, int, int], Truths]:
    """Return truths of the people's mean, for `items` items with people's ratings and four times as many without."""

    def truths(draw: Draw, items: int, repetitions: int) -> Truths:
        for at in (0.7, 0.9, 0.97) if share else (4.0, 6.5):

            def table_of(n: int, at: float = at) -> Any:
                if share:
                    people = (draw.random(n) < at).astype(float)
                    return np.stack([np.where(draw.random(n) < 0.8, people, draw.random(n) < 0.8), people], axis=1)
                quality = draw.normal(at, 1.2, (n, 1))
                return (quality + draw.normal(0, 0.7, (n, 2)) + np.array([0.4, 0])).round().clip(1, 7)

            def once(table_of: Any = table_of) -> Ends:
                table = table_of(5 * items)
                table[items:, 1] = np.nan
                result = corrected_mean(Ratings.from_table(table), 0)
                n_fitted = int(result.judge_share > 0) if field == "corrected" else 0
                estimate = getattr(result, field)
                return get_ends(restrict_to_scale(estimate, (0, 1) if share else (1, 7), estimate.clusters - n_fitted))

            yield float(table_of(400_000)[:, 1].mean()), once

    return truths


def simulate_rater_against_norms(field: str) -> Callable[[Draw, int, int], Truths]:
    """Return truths of a rater compared with norms: r, or concordance."""

    def truths(draw: Draw, items: int, repetitions: int) -> Truths:
        truth = 1 / 1.25**0.5 if field == "r" else 2 / (2.25 + 0.3**2)

        def once() -> Ends:
            norm = draw.standard_normal(items)
            table = np.stack([norm + 0.3 + 0.5 * draw.standard_normal(items), norm], axis=1)
            (line,) = compare_with_references(Ratings.from_table(table), [1], [0], [], {}, seed=1)
            return get_ends(getattr(line, field))

        yield truth, once

    return truths


def simulate_strengths(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield the strengths of three answers, each compared with each other `repetitions` times on every item."""
    truth = {"a": 0.6, "b": 0.0, "c": -0.6}
    for name, log_odds in truth.items():

        def once(name: str = name) -> Ends:
            of_item = {key: value + draw.normal(0, 0.5, items) for key, value in truth.items()}
            tallies = []
            for at in range(items):
                wins = []
                for first, second in (("a", "b"), ("a", "c"), ("b", "c")):
                    chance = 1 / (1 + np.exp(of_item[second][at] - of_item[first][at]))
                    won = int(draw.binomial(repetitions, chance))
                    wins.append(PairTally(first, second, won, repetitions - won))
                tallies.append((1, wins))
            try:
                fit = bradley_terry_by_items(Comparisons.from_tallies(tallies), seed=1, resamples=RESAMPLES)
            except ValueError:
                return NONE
            return get_ends(next(row for row in fit.strengths if row.name == name))

        yield log_odds * ATTENUATED, once


def _simulate_attenuation() -> float:
    """Return the factor by which the spread of items (SD .5 for each name) reduces the pooled log-odds."""
    draw, ratios = np.random.default_rng(1), []
    for gap in (0.6, 1.2):
        chance = (1 / (1 + np.exp(-(gap + draw.normal(0, 0.5**0.5, 2_000_000))))).mean()
        ratios.append(float(np.log(chance / (1 - chance)) / gap))
    return float(np.mean(ratios))


ATTENUATED = _simulate_attenuation()
