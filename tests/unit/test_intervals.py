"""One function chooses the interval of a mean or share: it covers, never leaves the scale, and never has zero width."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from evalsite.lib.stats import wilson
from grading_app.statistics.clusters import ClusterSums, clustered_share
from grading_app.statistics.intervals import NO_SPREAD, ONE_ITEM, bounded_score_interval, estimate_mean, sum_clusters
from tests.unit.clustered_scores import compute_sums

points = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=5), min_size=2, max_size=30)


def test_ten_right_answers_of_ten_have_wilsons_interval_of_a_share():
    result, expected = estimate_mean(sum_clusters([1.0] * 10), (0, 1)), wilson(10, 10)
    assert (result.is_share, result.mean, result.method) == (True, 1.0, "modified Wilson")
    assert (result.low, result.high) == pytest.approx((expected.low, 1))
    assert result.low == pytest.approx(0.722, abs=0.001)


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5), min_size=2, max_size=12))
@settings(max_examples=50, deadline=None)
def test_scores_of_0_and_1_have_the_clustered_interval_of_a_share(groups):
    result, expected = estimate_mean(compute_sums(groups), (0, 1)), clustered_share(compute_sums(groups))
    assert result.is_share
    assert (result.mean, result.low, result.high) == (expected.share, expected.low, expected.high)


def test_a_partial_score_gives_the_interval_of_a_mean():
    result = estimate_mean(sum_clusters([1, 1, 0.5, 0]), (0, 1))
    assert not result.is_share
    assert 0 <= result.low < 0.625 < result.high <= 1


def test_ones_on_a_scale_from_1_to_7_are_not_a_share():
    assert not estimate_mean(sum_clusters([1.0] * 5), (1, 7)).is_share


@given(points)
@settings(max_examples=100, deadline=None)
def test_the_interval_of_a_rating_stays_on_its_scale_contains_the_mean_and_has_a_width(groups):
    result = estimate_mean(compute_sums(groups), (1, 7))
    assert 1 <= result.low <= result.mean + 1e-9
    assert result.mean - 1e-9 <= result.high <= 7
    assert result.high - result.low > 0.01


def test_many_varying_items_have_students_interval():
    scores = np.random.default_rng(4).integers(2, 7, 400).astype(float)
    result = estimate_mean(sum_clusters(list(scores)), (1, 7))
    reach = student.ppf(0.975, 399) * scores.std(ddof=1) / 20
    assert (result.low, result.high) == pytest.approx((scores.mean() - reach, scores.mean() + reach), abs=0.01)
    unbounded = estimate_mean(sum_clusters(list(scores)))
    assert (unbounded.low, unbounded.high) == pytest.approx((scores.mean() - reach, scores.mean() + reach))


def test_repetitions_of_an_item_add_no_certainty():
    scores = [3.0, 5.0, 6.0, 2.0, 4.0, 4.0]
    once = estimate_mean(sum_clusters(scores), (1, 7))
    often = estimate_mean(sum_clusters(scores * 20, list(range(6)) * 20), (1, 7))
    assert (often.low, often.high) == pytest.approx((once.low, once.high))
    assert (often.n, often.clusters) == (120, 6)


def test_a_missing_interval_has_a_reason():
    assert estimate_mean(ClusterSums(), (1, 7)) is None
    of_one_item = [
        estimate_mean(sum_clusters([4.0, 5.0], ["a", "a"]), (1, 7)),
        estimate_mean(sum_clusters([1.0]), (0, 1)),
    ]
    for result in of_one_item:
        assert (result.low, result.high, result.method, result.reason) == (None, None, "", ONE_ITEM)
    equal = estimate_mean(sum_clusters([12.0] * 5))
    assert (equal.se, equal.low, equal.reason) == (0, None, NO_SPREAD)


SHAPES = {
    "even": [1 / 7] * 7,
    "high": [0, 0, 0, 0.05, 0.2, 0.5, 0.25],
    "nearly all 7": [0, 0, 0, 0, 0, 0.05, 0.95],
    "a few 1 among 7": [0.05, 0, 0, 0, 0, 0, 0.95],
    "some 1 among 7": [0.2, 0, 0, 0, 0, 0, 0.8],
    "nearly all 4": [0, 0, 0.03, 0.94, 0.03, 0, 0],
}


@pytest.mark.parametrize("items", [5, 10, 40, 200])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_interval_covers_the_mean_of_ratings_in_94_of_100_samples(shape, items):
    samples = np.random.default_rng(1).choice(np.arange(1, 8), size=(1000, items), p=SHAPES[shape])
    mean, se = samples.mean(axis=1), samples.std(axis=1, ddof=1) / np.sqrt(items)
    true = float(np.arange(1, 8) @ SHAPES[shape])
    ends = [bounded_score_interval(*estimates, items, (1, 7)) for estimates in zip(mean, se, strict=True)]
    assert np.mean([low - 1e-9 <= true <= high + 1e-9 for low, high in ends]) > 0.935


@pytest.mark.parametrize("mean", [0.9, 7.1])
def test_a_mean_outside_the_scale_is_estimated_without_bounds(mean):
    with pytest.raises(ValueError, match="no interval: mean"):
        bounded_score_interval(mean, 0.1, 5, (1, 7))
    result = estimate_mean(sum_clusters([mean - 0.05, mean, mean + 0.05]), (1, 7))
    assert result.low < mean < result.high
