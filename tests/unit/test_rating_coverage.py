"""The coverage table of rated points; a smaller simulation with another seed agrees within its error."""

import math

import numpy as np
import pytest

from runs_app.stopping import coverage
from runs_app.stopping.coverage import CONFIDENCE, MEAN_COVERAGE, SCALE, SHAPES, find_mean_coverage, simulate_mean
from runs_app.stopping.rules import PointRatings

POINTS = 1_500


@pytest.mark.parametrize("setting", MEAN_COVERAGE, ids=str)
def test_the_interval_at_the_stop_has_the_coverage_of_the_table(setting):
    for shape, documented in zip(SHAPES, MEAN_COVERAGE[setting], strict=True):
        result, _ = simulate_mean(*setting, shape, points=POINTS, seed=7)
        # Four standard errors of the difference; the minimum is for shares near 1, whose own error vanishes.
        error = max(0.002, (documented * (1 - documented) / POINTS) ** 0.5)
        assert result == pytest.approx(documented, abs=4 * error), shape


def test_checking_after_each_round_costs_at_most_one_point_of_coverage():
    assert min(rate for row in MEAN_COVERAGE.values() for rate in row) >= 0.94


def test_the_simulation_uses_the_interval_of_the_stopping_rule():
    index = np.arange(SCALE[0], SCALE[1] + 1)
    counts = np.random.default_rng(5).multinomial(32, SHAPES["wide"], 50)
    centers, margins = coverage._compute_intervals(counts, index, 32)
    for row, center, margin in zip(counts, centers, margins, strict=True):
        values = np.repeat(index, row)
        interval = PointRatings(32, 32, float(values.mean()), float(values.std(ddof=1)), SCALE).interval(CONFIDENCE)
        assert (interval.center, interval.margin) == pytest.approx((center, margin))


def test_students_interval_alone_would_stop_on_equal_ratings():
    # The reason for the two added ratings at each end: 2,000 points of 32 items, five in a hundred at the other end.
    shares, index = SHAPES["one end, 5 in 100 at the other"], np.arange(SCALE[0], SCALE[1] + 1)
    counts = np.random.default_rng(3).multinomial(32, shares, 2000)
    means, true = counts @ index / 32, float(np.array(shares) @ index)
    spreads = np.sqrt(np.maximum(counts @ index**2 / 32 - means**2, 0) * 32 / 31)
    alone = np.mean(np.abs(means - true) <= 2.0395 * spreads / math.sqrt(32))
    centers, margins = coverage._compute_intervals(counts, index, 32)
    assert alone < 0.85
    assert np.mean(np.abs(centers - true) <= margins) > 0.95


def test_a_setting_gets_the_coverage_of_the_nearest_simulated_setting():
    near = find_mean_coverage(0.25, 40, 6)
    assert (near.target, near.per_round) == (0.3, 32)
    assert (near.least, near.most) == (min(MEAN_COVERAGE[0.3, 32]), max(MEAN_COVERAGE[0.3, 32]))
    assert find_mean_coverage(5, 8, 100).target == 0.3  # Five of a hundred are a share as 0.3 of six.
