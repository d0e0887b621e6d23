"""Simulated coverage of the intervals of the explorer: differences beyond guessing, and bands over tokens."""

import numpy as np
import pytest

from grading_app.results.parametric.point_counts import CellCounts
from grading_app.results.parametric.surface import estimate_accuracy, subtract_estimates
from grading_app.statistics.token_statistics import kaplan_meier

SAMPLES, LEAST = 1500, 0.93


def estimate_cell(right, n, guess):
    return estimate_accuracy([CellCounts(1, 0, n, right, n, 0, 0, guess * n, 0, 0)])


@pytest.mark.parametrize("guess", [0.0, 0.25, 0.5])
@pytest.mark.parametrize(("one", "other"), [(0.0, 0.0), (0.2, 0.6), (0.9, 0.95), (1.0, 0.7)])
def test_intervals_of_differences_cover_the_true_difference(guess, one, other):
    """one, other: the true accuracies beyond guessing, at 32 and 64 answers."""
    rng = np.random.default_rng(11)
    a, b = (rng.binomial(n, guess + (1 - guess) * p, SAMPLES) for n, p in ((32, one), (64, other)))
    result = [
        subtract_estimates(estimate_cell(int(x), 32, guess), estimate_cell(int(y), 64, guess))
        for x, y in zip(a, b, strict=True)
    ]
    covered = np.mean([low <= other - one <= high for _, low, high in result])
    assert covered >= LEAST
    assert all(low < high for _, low, high in result)


@pytest.mark.parametrize("limit", [60, 200])
@pytest.mark.parametrize("at", [20, 50])
def test_the_band_of_finished_answers_covers_the_true_share(limit, at):
    """Lengths are geometric with mean 40. Each answer is truncated at its own limit."""
    rng = np.random.default_rng(13)
    truth, covered = (1 - 1 / 40) ** at, 0
    for _ in range(SAMPLES):
        lengths, limits = rng.geometric(1 / 40, 60), rng.integers(limit // 4, limit, 60)
        lengths_shown, ended = np.minimum(lengths, limits), lengths <= limits
        events = dict(zip(*np.unique(lengths_shown[ended], return_counts=True), strict=True))
        censored = dict(zip(*np.unique(lengths_shown[~ended], return_counts=True), strict=True))
        steps = [step for step in kaplan_meier(events, censored) if step.time <= at]
        covered += bool(steps) and steps[-1].low <= truth <= steps[-1].high
    assert covered / SAMPLES >= LEAST
