"""The simulated coverage of the interval at which a point stops. A look after each round lowers the coverage.

`simulate` computed the table, and a test recomputes it. Pages quote it; no other file has these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

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
