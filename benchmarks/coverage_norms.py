"""Simulated designs for the intervals against norms, and for correlations. `coverage.py` runs them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.coverage_scores import NONE, Draw, Ends, Truths, get_ends
from grading_app.statistics import reference
from grading_app.statistics.concordance import lins_concordance
from grading_app.statistics.correlation import pearson
from grading_app.statistics.paired import MIN_CHANGED, estimate_change
from grading_app.statistics.ratings import Ratings
from grading_app.statistics.variance_components import Components, paired_power


def simulate_difference(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield the mean of differences from the norms: normal, and skewed."""
    for skewed in (False, True):

        def once(skewed: bool = skewed) -> Ends:
            apart = (draw.gamma(2, 0.5, items) - 0.6) if skewed else draw.normal(0.4, 0.7, items)
            apart = apart + draw.normal(0, 0.5 / repetitions**0.5, items)
            norms = draw.normal(4, 1, items)
            result = reference.paired_difference(norms + apart, norms)
            return result.interval if result else NONE

        yield 0.4, once


def simulate_effect(draw: Draw, items: int, repetitions: int) -> Truths:
    for truth in (0.0, 0.5, 1.5):

        def once(truth: float = truth) -> Ends:
            norms = draw.normal(4, 1, items)
            result = reference.paired_difference(norms + draw.normal(truth, 1, items), norms)
            return result.effect_interval if result else NONE

        yield truth, once


def simulate_correlation(draw: Draw, items: int, repetitions: int) -> Truths:
    for kind, r in (("normal", 0.6), ("exponential", 0.6), ("exponential", 0.9), ("lognormal", 0.8)):

        def once(kind: str = kind, r: float = r) -> Ends:
            x, e = (_draw_values(draw, kind, items) for _ in range(2))
            return get_ends(pearson(list(x), list(r * x + (1 - r * r) ** 0.5 * e)))

        yield r, once


def simulate_normal_correlation(draw: Draw, items: int, repetitions: int) -> Truths:
    for r in (0.0, 0.6, 0.95):

        def once(r: float = r) -> Ends:
            x, e = draw.standard_normal(items), draw.standard_normal(items)
            return get_ends(pearson(list(x), list(r * x + (1 - r * r) ** 0.5 * e)))

        yield r, once


def simulate_odd_correlation(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield correlations of ratings from 1 to 7 with norms, some of which are 3 points too low."""
    for share in (0.02, 0.05, 0.1):

        def draw_pairs(n: int, share: float = share) -> tuple[reference.Floats, reference.Floats]:
            people = np.clip(draw.normal(4, 1.2, n), 1, 7)
            model = people + draw.normal(0, 0.25, n) - 3 * (draw.random(n) < share)
            return people, np.clip(model, 1, 7)

        def once(draw_pairs: Callable[[int], tuple[reference.Floats, reference.Floats]] = draw_pairs) -> Ends:
            return get_ends(pearson(*draw_pairs(items)))

        yield float(np.corrcoef(*draw_pairs(400_000))[0, 1]), once


def _draw_values(draw: Draw, kind: str, items: int) -> reference.Floats:
    if kind == "normal":
        return draw.standard_normal(items)
    return draw.exponential(1, items) if kind == "exponential" else draw.lognormal(0, 0.6, items)


def simulate_rank_correlation(draw: Draw, items: int, repetitions: int) -> Truths:
    for r in (0.3, 0.6, 0.95):

        def once(r: float = r) -> Ends:
            x, e = draw.standard_normal(items), draw.standard_normal(items)
            result = reference.spearman(x, r * x + (1 - r * r) ** 0.5 * e)
            return result[1] if result and result[1] else NONE

        yield 6 / np.pi * np.arcsin(r / 2), once


def simulate_lins_formula(draw: Draw, items: int, repetitions: int) -> Truths:
    for shift in (0.0, 0.5):

        def once(shift: float = shift) -> Ends:
            table = draw.standard_normal((items, 1)) + 0.5 * draw.standard_normal((items, 2)) + np.array([shift, 0])
            return get_ends(lins_concordance(Ratings.from_table(table)).result())

        yield 2 / (2.5 + shift**2), once


def simulate_error(statistic: str) -> object:
    """Return truths of the mean absolute error or the root mean square error."""

    def truths(draw: Draw, items: int, repetitions: int) -> Truths:
        for bias in (0.0, 0.5):
            many = draw.normal(bias, 0.8, 2_000_000)
            truth = float(np.abs(many).mean() if statistic == "mae" else np.sqrt((many**2).mean()))

            def once(bias: float = bias) -> Ends:
                norms = draw.normal(4, 1, items)
                apart = draw.normal(bias, 0.8, items)
                return reference.error_interval(norms + apart, norms, statistic) or NONE

            yield truth, once

    return truths


def simulate_line(method: str, name: str) -> object:
    """Return truths of the intercept or the slope of a line; Deming's line has equal errors in both."""

    def truths(draw: Draw, items: int, repetitions: int) -> Truths:
        def once() -> Ends:
            values = draw.normal(4, 1, items)
            x = values + (0.4 * draw.standard_normal(items) if method == "deming" else 0)
            y = 0.5 + 0.8 * values + 0.4 * draw.standard_normal(items)
            fit = reference.deming(x, y) if method == "deming" else reference.least_squares(x, y)
            return (getattr(fit, f"{name}_interval") or NONE) if fit else NONE

        yield {"intercept": 0.5, "slope": 0.8}[name], once

    return truths


def estimate_equivalence_level(draw: Draw, items: int, samples: int) -> float:
    """Return the share of samples in which a difference equal to the margin is equivalent; at most .05 is correct."""
    margin = 0.5
    hits = 0
    for _ in range(samples):
        apart = draw.normal(margin, 0.7, items)
        se = float(apart.std(ddof=1)) / items**0.5
        hits += reference.equivalence_p(items, float(apart.mean()), se, margin) < 0.05
    return hits / samples


def estimate_power_error(draw: Draw, items: int, samples: int) -> float:
    """Return the share of samples in which the pages' test finds a difference, minus the power by `paired_power`."""
    components = Components(items, 2, 1, 1.0, 0.0, 0.5, None)
    se = components.standard_error(items, 1)
    true_difference = 2.5 * se
    hits = 0
    for _ in range(samples):
        apart = draw.normal(true_difference, se * items**0.5, items)
        few = list(apart) if items < MIN_CHANGED else None
        change = estimate_change(items, float(apart.mean()), float(apart.std(ddof=1)), few)
        hits += change is not None and change.p_or_one < 0.05
    return hits / samples - paired_power(true_difference, se, items)
