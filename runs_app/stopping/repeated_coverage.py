"""The simulated coverage of the interval at which a point stops, for designs that repeat the items of a point.

`coverage` has the table for points that use each item once. Here the number of items matters, too, so the simulation
runs for each design.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from evalsite.lib.stats.effective_size import AnswerSums, estimate_effective_size
from evalsite.lib.stats.wilson import normal_quantile
from runs_app.stopping.coverage import ROUNDING_ERROR

POINTS = 400  # Simulated points for each number below, whose standard error is about .011.
SKILLS = (0.5, 0.9, 0.97)  # The true accuracies beyond guessing.
CORRELATIONS = (0.1, 0.3, 0.6)  # Between answers to one item, if its accuracy has a beta distribution.
LOW_COVERAGE = 0.93
SEED = 1


@dataclass(frozen=True, slots=True)
class RepeatedDesign:
    """A point that repeats its items: at most `maximum` cases of `items` items, in rounds of `per_round`.

    `target` is the half-width at which it stops, `guess` the chance to guess right.
    """

    items: int
    maximum: int
    per_round: int
    target: float
    confidence: float = 0.95
    guess: float = 0.0


@dataclass(frozen=True, slots=True)
class RepeatedCoverage:
    """The lowest and highest simulated coverage of a design, over SKILLS and CORRELATIONS."""

    design: RepeatedDesign
    least: float
    most: float

    @property
    def min_percent(self) -> str:
        return f"{100 * self.least:.0f}"

    @property
    def max_percent(self) -> str:
        return f"{100 * self.most:.0f}"

    @property
    def is_low(self) -> bool:
        return self.least < LOW_COVERAGE - 2 * 0.013  # Two standard errors of a share of LOW of POINTS.


@lru_cache(maxsize=64)
def find_coverage(design: RepeatedDesign) -> RepeatedCoverage:
    """Return the coverage of a design. The simulation takes up to a second, and is cached in the process."""
    rates = [
        simulate(design, skill, correlation, points=POINTS, seed=SEED)[0]
        for skill in SKILLS
        for correlation in CORRELATIONS
    ]
    return RepeatedCoverage(design, min(rates), max(rates))


def simulate(
    design: RepeatedDesign, skill: float, correlation: float, *, points: int, seed: int
) -> tuple[float, float]:
    """Return the share of simulated points whose interval covers the true accuracy, and the mean number of cases.

    `correlation` is that between answers to one item, from 0 to below 1. With 0, all items are equally difficult.
    """
    import numpy as np

    draw, items, z = np.random.default_rng(seed), design.items, normal_quantile(design.confidence)
    right = skill + (1 - skill) * design.guess
    more = 1 / correlation - 1 if correlation else 0.0
    chances = np.full((points, items), right)
    if correlation:
        chances = draw.beta(right * more, (1 - right) * more, (points, items))
    n_right, sizes, cases, covered, n_used = np.zeros((points, items)), np.zeros(items), 0, 0, 0
    while len(n_right):
        upto = min(cases + design.per_round, design.maximum)
        new_cases = np.bincount(np.arange(cases, upto) % items, minlength=items)
        n_right, sizes, cases = n_right + draw.binomial(new_cases, chances), sizes + new_cases, upto
        total, squares = n_right.sum(axis=1), float(sizes @ sizes)
        sums = AnswerSums(
            float(cases), int((sizes > 0).sum()), squares, total, (n_right**2).sum(axis=1), n_right @ sizes
        )
        n = estimate_effective_size(sums, design.confidence) if squares > cases else np.full(len(n_right), float(cases))
        # Centers and half-widths of many intervals at once, by the formula of `wilson`.
        share = total / cases
        shrink = 1 + z * z / n
        center = (share + z * z / (2 * n)) / shrink
        margin = z * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5 / shrink
        margin_beyond = margin / (1 - design.guess)
        stops = (margin_beyond <= design.target) | (cases >= design.maximum)
        covered += int((np.abs(center - right) <= margin + ROUNDING_ERROR)[stops].sum())
        n_used += cases * int(stops.sum())
        n_right, chances = n_right[~stops], chances[~stops]
    return covered / points, n_used / points
