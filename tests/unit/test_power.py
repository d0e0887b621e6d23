"""The difference that a design can detect: by the formula, and by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.planning.power import (
    DEFAULT_ASSUMPTIONS,
    Assumptions,
    compute_detectable_effect,
    compute_smallest_difference,
)

shares = st.floats(0, 1)
sizes = st.integers(2, 10_000)
samples = st.integers(1, 100)
assumptions = st.builds(Assumptions, between=shares, correlation=st.floats(-1, 1))


def test_a_paired_comparison_matches_the_textbook_formula():
    """One answer an item, no correlation: the two-sample formula 2 (z + z)^2 / d^2 = n, n = 63 for d = .5."""
    given_ = Assumptions(between=0, correlation=0)
    assert compute_smallest_difference(63, 1, given_) == pytest.approx(0.5, abs=0.002)
    assert math.ceil(2 * (1.959964 + 0.841621) ** 2 / 0.5**2) == 63


def test_the_formula_matches_millers():
    """n = (z + z)^2 (omega^2 + sigma_A^2/K_A + sigma_B^2/K_B) / delta^2, for omega^2 = 1/9, sigma^2 = 1/6, K = 10."""
    n = (1.959964 + 0.841621) ** 2 * (1 / 9 + 2 / 60) / 0.03**2
    b = (1 / 6 + 1 / 12) / (1 / 6 + 1 / 12 + 1 / 6)  # any variance of items with the same omega^2
    total = (1 / 6) / (1 - b)
    given_ = Assumptions(between=b, correlation=1 - (1 / 9) / (2 * b * total))
    assert compute_smallest_difference(round(n), 10, given_) * math.sqrt(total) == pytest.approx(0.03, rel=1e-3)


@pytest.mark.parametrize(("between", "correlation", "repeats"), [(0.7, 0.5, 3), (0.2, 0.8, 1), (0.9, 0.0, 10)])
def test_simulated_power_equals_the_stated_power(between, correlation, repeats):
    rng = np.random.default_rng(7)
    n, times = 60, 4000
    given_ = Assumptions(between, correlation)
    d = compute_smallest_difference(n, repeats, given_)
    covariance = between * np.array([[1, correlation], [correlation, 1]])
    items = rng.multivariate_normal([0, d], covariance, size=(times, n), method="cholesky")
    means = items + rng.normal(0, math.sqrt((1 - between) / repeats), size=items.shape)
    difference = means[..., 1] - means[..., 0]
    z = difference.mean(axis=1) / (difference.std(axis=1, ddof=1) / math.sqrt(n))
    assert (abs(z) > 1.96).mean() == pytest.approx(0.8, abs=0.03)


@given(sizes, samples, assumptions)
def test_doubling_items_is_at_least_as_informative_as_doubling_samples(n, k, given_):
    result = compute_detectable_effect(n, k, given_)
    assert result.with_twice_the_items <= result.with_twice_the_samples * (1 + 1e-12)
    assert result.with_twice_the_items == pytest.approx(result.d / math.sqrt(2))


@given(sizes, samples, assumptions, sizes, samples)
def test_more_data_never_increase_the_detectable_difference(n, k, given_, more_items, more_samples):
    d = compute_smallest_difference(n, k, given_)
    assert compute_smallest_difference(n + more_items, k, given_) <= d
    assert compute_smallest_difference(n, k + more_samples, given_) <= d


@given(sizes, samples, st.floats(0.5, 0.99), st.floats(0.5, 0.99))
def test_more_power_requires_a_larger_difference(n, k, one, other):
    low, high = sorted((one, other))
    assert compute_smallest_difference(n, k, Assumptions(power=low)) <= compute_smallest_difference(
        n, k, Assumptions(power=high)
    )


def test_repetitions_do_not_count_as_items():
    """If all variance lies between items, a thousand samples of each add no information."""
    all_between = Assumptions(between=1)
    assert compute_smallest_difference(40, 1000, all_between) == compute_smallest_difference(40, 1, all_between)


def test_one_item_detects_nothing_and_invalid_values_are_refused():
    assert compute_detectable_effect(1, 5) is None
    assert compute_detectable_effect(2, 5).has_few_items
    assert not compute_detectable_effect(20, 1).has_few_items
    for wrong in ({"between": 1.1}, {"correlation": -2}, {"alpha": 0}, {"power": 1}):
        with pytest.raises(ValueError, match="invalid assumptions"):
            Assumptions(**wrong)
    with pytest.raises(ValueError, match="at least one repetition"):
        compute_detectable_effect(10, 0)


def test_binary_scores_have_a_standard_deviation_of_at_most_one_half():
    result = compute_detectable_effect(100, 1, DEFAULT_ASSUMPTIONS)
    assert result.percentage_points == pytest.approx(50 * result.d)
    assert compute_detectable_effect(2, 1, Assumptions(between=0)).share == 1.0
