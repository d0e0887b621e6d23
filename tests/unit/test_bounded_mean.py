"""Gaffke's interval of a bounded mean against Clopper and Pearson's, a simulation of its weights, and invariances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from grading_app.statistics.paired import gaffke_interval


@pytest.mark.parametrize(("right", "n"), [(0, 2), (0, 40), (1, 40), (3, 20), (5, 5), (180, 200), (7, 1000)])
def test_values_at_the_bounds_have_clopper_and_pearsons_interval(right, n):
    expected = binomtest(right, n).proportion_ci(method="exact")
    assert gaffke_interval([0, 1], [n - right, right], (0, 1)) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_the_ends_are_quantiles_of_the_weighted_mean_with_one_more_value_at_a_bound():
    values, counts = [-3.0, 0.0, 1.0], [4, 30, 6]
    weights = np.random.default_rng(5).dirichlet([*counts, 1], 400_000)
    low = np.quantile(weights @ np.array([*values, -6.0]), 0.025)
    high = np.quantile(weights @ np.array([*values, 6.0]), 0.975)
    assert gaffke_interval(values, counts, (-6, 6)) == pytest.approx((low, high), abs=0.005)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=30))
def test_the_interval_contains_the_mean_within_the_scale_and_mirrors(ratings):
    values, counts = np.unique(ratings, return_counts=True)
    low, high = gaffke_interval(values, counts, (1, 7))
    assert 1 <= low < np.mean(ratings) + 1e-9
    assert np.mean(ratings) - 1e-9 < high <= 7
    assert high - low > 0.05
    assert gaffke_interval(-values, counts, (-7, -1)) == pytest.approx((-high, -low), abs=1e-6)


def test_values_outside_the_bounds_are_refused():
    with pytest.raises(ValueError, match="values must lie within 0 and 1"):
        gaffke_interval([2.0], [3], (0, 1))
