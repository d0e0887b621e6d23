"""The simulated coverage of the interval at which a point stops. A look after each round lowers the coverage.

The tables hold that of accuracies (`COVERAGE`) and that of means of ratings (`MEAN_COVERAGE`), for points that use each
item once. `simulate` and `simulate_mean` computed them, and a test recomputes them. Pages quote them; no other file has
these numbers. If a design repeats the items of a point, their number matters, too, so `find_coverage` simulates it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from evalsite.lib.stats import (
    VALUES_AT_EACH_END,
    AnswerSums,
    estimate_effective_size,
    normal_quantile,
    student_quantile,
)
from runs_app.stopping.rules import StoppingRule, Tally

POINTS = 20_000  # Simulated points for each number below, whose standard error is at most .002.
MAXIMUM = 2048  # The number of cases at which a simulated point always ends.
CONFIDENCE = 0.95
ROUNDING_ERROR = 1e-9
SKILLS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97)  # The true accuracies beyond guessing.
GUESSES = (0.0, 0.25, 0.5)
# (target half-width, cases per round, guess chance) -> share of intervals at the stop that cover each of SKILLS.
COVERAGE: Mapping[tuple[float, int, float], tuple[float, ...]] = {
    (0.05, 8, 0.0): (1.000, 0.946, 0.951, 0.950, 0.951, 0.946, 0.965),
    (0.05, 8, 0.25): (0.977, 0.947, 0.948, 0.951, 0.952, 0.940, 0.970),
    (0.05, 8, 0.5): (0.976, 0.953, 0.950, 0.947, 0.955, 0.943, 0.967),
    (0.05, 32, 0.0): (1.000, 0.961, 0.953, 0.952, 0.953, 0.961, 0.971),
    (0.05, 32, 0.25): (0.975, 0.949, 0.949, 0.946, 0.947, 0.949, 0.975),
    (0.05, 32, 0.5): (0.976, 0.953, 0.952, 0.948, 0.954, 0.957, 0.958),
    (0.05, 128, 0.0): (1.000, 0.950, 0.944, 0.955, 0.944, 0.950, 0.941),
    (0.05, 128, 0.25): (0.973, 0.953, 0.944, 0.954, 0.947, 0.963, 0.982),
    (0.05, 128, 0.5): (0.977, 0.951, 0.948, 0.950, 0.953, 0.957, 0.959),
    (0.09, 8, 0.0): (1.000, 0.976, 0.938, 0.951, 0.938, 0.976, 0.969),
    (0.09, 8, 0.25): (0.973, 0.941, 0.951, 0.942, 0.939, 0.982, 0.966),
    (0.09, 8, 0.5): (0.976, 0.947, 0.951, 0.942, 0.941, 0.974, 0.962),
    (0.09, 32, 0.0): (1.000, 0.981, 0.942, 0.957, 0.942, 0.981, 0.964),
    (0.09, 32, 0.25): (0.970, 0.943, 0.944, 0.955, 0.946, 0.984, 0.950),
    (0.09, 32, 0.5): (0.977, 0.952, 0.947, 0.953, 0.953, 0.973, 0.948),
    (0.09, 128, 0.0): (1.000, 0.947, 0.948, 0.958, 0.948, 0.947, 0.941),
    (0.09, 128, 0.25): (0.975, 0.948, 0.949, 0.955, 0.953, 0.958, 0.974),
    (0.09, 128, 0.5): (0.979, 0.950, 0.949, 0.955, 0.951, 0.961, 0.957),
    (0.15, 8, 0.0): (1.000, 0.969, 0.965, 0.952, 0.965, 0.969, 0.972),
    (0.15, 8, 0.25): (0.977, 0.938, 0.937, 0.960, 0.978, 0.983, 0.971),
    (0.15, 8, 0.5): (0.973, 0.952, 0.954, 0.951, 0.973, 0.978, 0.968),
    (0.15, 32, 0.0): (1.000, 0.966, 0.945, 0.930, 0.945, 0.966, 0.931),
    (0.15, 32, 0.25): (0.983, 0.952, 0.936, 0.952, 0.964, 0.961, 0.967),
    (0.15, 32, 0.5): (0.974, 0.946, 0.959, 0.944, 0.956, 0.975, 0.935),
    (0.15, 128, 0.0): (1.000, 0.947, 0.948, 0.958, 0.948, 0.947, 0.941),
    (0.15, 128, 0.25): (0.971, 0.939, 0.959, 0.945, 0.947, 0.958, 0.974),
    (0.15, 128, 0.5): (0.974, 0.947, 0.954, 0.951, 0.956, 0.961, 0.957),
}


@dataclass(frozen=True, slots=True)
class CoverageRange:
    """The lowest and highest coverage of the 95 % interval, over accuracies and guess chances."""

    least: float
    most: float
    target: float
    per_round: int

    @property
    def min_percent(self) -> str:
        return f"{100 * self.least:.1f}"

    @property
    def max_percent(self) -> str:
        return f"{100 * self.most:.1f}"


def find_nearest_coverage(target: float, per_round: int) -> CoverageRange:
    """Return the simulated coverage for the nearest setting, by the ratios of half-width and of round size."""
    target, per_round = max(target, 1e-3), max(per_round, 1)
    settings = {(half_width, n_cases) for half_width, n_cases, _ in COVERAGE}
    nearest = min(
        sorted(settings),
        key=lambda setting: abs(math.log(setting[0] / target)) + abs(math.log(setting[1] / per_round)) / 4,
    )
    rates = [
        rate
        for (*setting, guess), row in COVERAGE.items()
        if tuple(setting) == nearest
        for skill, rate in zip(SKILLS, row, strict=True)
        if guess or skill  # At skill 0 without guessing, no answer is right, so the interval always covers 0.
    ]
    return CoverageRange(min(rates), max(rates), *nearest)


def simulate(target: float, per_round: int, guess: float, skill: float, *, points: int, seed: int) -> float:
    """Return the share of simulated points whose interval covers `skill`, the true accuracy beyond guessing."""
    import numpy as np

    draw = np.random.default_rng(seed)
    rule = StoppingRule(maximum=MAXIMUM, targetci=target, confidence=CONFIDENCE)
    correct, cases, covered = np.zeros(points, dtype=int), 0, 0
    while correct.size:
        more = min(per_round, MAXIMUM - cases)
        cases += more
        correct = correct + draw.binomial(more, skill + (1 - skill) * guess, correct.size)
        continues = np.ones(correct.size, dtype=bool)
        for count in np.unique(correct):
            tally = Tally(int(count), cases, guess_chances=guess * cases)
            interval = tally.interval(CONFIDENCE)
            if interval is not None and rule.decide(tally).kind != "more":
                stopped = correct == count
                continues &= ~stopped
                covered += int(stopped.sum()) * (
                    interval.low - ROUNDING_ERROR <= skill <= interval.high + ROUNDING_ERROR
                )
        correct = correct[continues]
    return covered / points


if TYPE_CHECKING:
    import numpy as np

    Counts = np.ndarray[Any, np.dtype[np.int64]]
    Floats = np.ndarray[Any, np.dtype[np.float64]]

SCALE = (1, 7)
LENGTH = SCALE[1] - SCALE[0]
# The shares of the scale's points among an item's ratings: typical ones, and ones that are difficult for a mean.
SHAPES: Mapping[str, tuple[float, ...]] = {
    "alike but for 3 in 100": (0, 0, 0.03, 0.97, 0, 0, 0),
    "within a point": (0, 0.01, 0.16, 0.66, 0.16, 0.01, 0),
    "around the middle": (0.01, 0.06, 0.24, 0.38, 0.24, 0.06, 0.01),
    "wide": (0.05, 0.11, 0.21, 0.26, 0.21, 0.11, 0.05),
    "each equally often": (1 / 7,) * 7,
    "both ends": (0.5, 0, 0, 0, 0, 0, 0.5),
    "mostly at one end": (0.7, 0.15, 0.07, 0.04, 0.02, 0.01, 0.01),
    "one end, 5 in 100 at the other": (0.95, 0, 0, 0, 0, 0, 0.05),
    "one end, 10 in 100 at the other": (0.9, 0, 0, 0, 0, 0, 0.1),
}
# (target half-width, items per round) -> share of intervals at the stop that cover the mean of each of SHAPES.
MEAN_COVERAGE: Mapping[tuple[float, int], tuple[float, ...]] = {
    (0.15, 8): (1.000, 0.992, 0.963, 0.954, 0.952, 0.950, 0.961, 0.956, 0.957),
    (0.15, 32): (1.000, 0.989, 0.964, 0.955, 0.950, 0.951, 0.961, 0.957, 0.952),
    (0.15, 128): (1.000, 0.989, 0.964, 0.951, 0.952, 0.949, 0.955, 0.964, 0.957),
    (0.3, 8): (1.000, 0.999, 0.984, 0.963, 0.955, 0.954, 0.967, 0.975, 0.961),
    (0.3, 32): (1.000, 0.999, 0.980, 0.962, 0.954, 0.951, 0.966, 0.975, 0.966),
    (0.3, 128): (1.000, 0.990, 0.972, 0.963, 0.952, 0.954, 0.959, 0.974, 0.968),
    (0.6, 8): (1.000, 1.000, 0.998, 0.985, 0.966, 0.948, 0.970, 0.982, 0.977),
    (0.6, 32): (1.000, 1.000, 0.995, 0.981, 0.961, 0.949, 0.971, 0.986, 0.980),
    (0.6, 128): (1.000, 0.990, 0.972, 0.963, 0.956, 0.958, 0.959, 0.964, 0.963),
}


def find_mean_coverage(target: float, per_round: int, length: int) -> CoverageRange:
    """Return the simulated coverage for the nearest setting.

    The half-width is compared as a share of the scale's length.
    """
    share, per_round = max(target / length, 1e-4), max(per_round, 1)
    nearest = min(
        sorted(MEAN_COVERAGE),
        key=lambda setting: abs(math.log(setting[0] / LENGTH / share)) + abs(math.log(setting[1] / per_round)) / 4,
    )
    return CoverageRange(min(MEAN_COVERAGE[nearest]), max(MEAN_COVERAGE[nearest]), *nearest)


def simulate_mean(target: float, per_round: int, shape: str, *, points: int, seed: int) -> tuple[float, float]:
    """Return the share of simulated points whose interval covers the true mean, and the mean number of items used.

    Each item is rated once, independently of the others. A point has MAXIMUM items.
    """
    import numpy as np

    draw, shares = np.random.default_rng(seed), np.array(SHAPES[shape])
    at = np.arange(SCALE[0], SCALE[1] + 1)
    true = float(shares @ at)
    counts, items, covered, n_used = np.zeros((points, at.size), dtype=np.int64), 0, 0, 0
    while len(counts):
        more = min(per_round, MAXIMUM - items)
        items += more
        counts = counts + draw.multinomial(more, shares, len(counts))
        center, margin = _compute_intervals(counts, at, items)
        stops = (margin <= target) | (items >= MAXIMUM)
        covered += int((np.abs(center - true) <= margin + ROUNDING_ERROR)[stops].sum())
        n_used += items * int(stops.sum())
        counts = counts[~stops]
    return covered / points, n_used / points


def _compute_intervals(counts: Counts, at: Counts, items: int) -> tuple[Floats, Floats]:
    """Return centers and half-widths of many points at once, by the formula of `compute_bounded_interval`."""
    import numpy as np

    both = counts + VALUES_AT_EACH_END * ((at == at[0]) | (at == at[-1]))
    many = items + 2 * VALUES_AT_EACH_END
    center = both @ at / many
    squares = both @ at**2 - many * center**2
    return center, student_quantile(CONFIDENCE, many - 1) * np.sqrt(squares / (many - 1) / many)


REPEATED_POINTS = 400  # Simulated points for each number below, whose standard error is about .011.
REPEATED_SKILLS = (0.5, 0.9, 0.97)  # The true accuracies beyond guessing.
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
    """The lowest and highest simulated coverage of a design, over REPEATED_SKILLS and CORRELATIONS."""

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
        return self.least < LOW_COVERAGE - 2 * 0.013  # Two standard errors of a share of LOW of REPEATED_POINTS.


@lru_cache(maxsize=64)
def find_coverage(design: RepeatedDesign) -> RepeatedCoverage:
    """Return the coverage of a design. The simulation takes up to a second, and is cached in the process."""
    rates = [
        simulate_repeated(design, skill, correlation, points=REPEATED_POINTS, seed=SEED)[0]
        for skill in REPEATED_SKILLS
        for correlation in CORRELATIONS
    ]
    return RepeatedCoverage(design, min(rates), max(rates))


def simulate_repeated(
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
