"""Means and shares from sums alone equal those from the scores themselves."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from evalsite.lib.stats import modified_wilson, wilson
from grading_app.statistics.clusters import ClusterSums, clustered_mean, clustered_share
from grading_app.statistics.intervals import estimate_mean, sum_clusters
from tests.factories.recordings import read_csv_rows
from tests.unit.clustered_scores import compute_sums, expect_clustered_mean, group_by_cluster

ratings = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=6), min_size=1, max_size=12)
marks = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=2, max_size=12)


@given(ratings)
@settings(max_examples=100, deadline=None)
def test_a_mean_from_sums_is_the_mean_from_scores(groups):
    result, expected = clustered_mean(compute_sums(groups)), expect_clustered_mean(groups)
    assert (result.n, result.clusters) == (sum(map(len, groups)), len(groups))
    for name in expected._fields:
        assert getattr(result, name) == pytest.approx(getattr(expected, name), abs=1e-6), name


def test_a_clustered_error_by_hand():
    # Mean 4. Residual sums of the clusters: (1-4)+(3-4) = -4, (5-4) = 1, (4-4)+(7-4) = 3. 16 + 1 + 9 = 26.
    # se^2 = 3/2 * 26 / 5^2 = 1.56; t(.975, 2) = 4.302653.
    result = clustered_mean(compute_sums([[1, 3], [5], [4, 7]]))
    assert (result.mean, result.clusters, result.n) == (4, 3, 5)
    assert result.se == pytest.approx(math.sqrt(1.56))
    assert result.high - result.mean == pytest.approx(4.302653 * math.sqrt(1.56), abs=1e-5)


@given(st.lists(st.lists(st.integers(1, 7), min_size=3, max_size=3), min_size=2, max_size=12))
@settings(max_examples=50, deadline=None)
def test_equal_clusters_give_the_error_of_their_means(groups):
    means = [sum(group) / 3 for group in groups]
    result = clustered_mean(compute_sums(groups))
    assert result.se == pytest.approx(statistics.stdev(means) / math.sqrt(len(groups)), abs=1e-6)


def test_recorded_ratings_of_the_same_image_are_correlated():
    rows = [row for row in read_csv_rows("uniform40-trials-gemma.csv") if row["dimension"] == "valence"]
    sums = compute_sums(group_by_cluster([int(row["rating"]) for row in rows], [row["image_id"] for row in rows]))
    result = clustered_mean(sums)
    assert (result.n, result.clusters) == (800, 40)
    # Twenty answers that never differ would inflate by sqrt(20) = 4.47, and by sqrt(40/39) for the few clusters.
    assert 4.3 < result.se / (sums.sd / math.sqrt(800)) < 4.53


@given(ratings, ratings)
@settings(max_examples=50, deadline=None)
def test_sums_of_disjoint_items_add_up(one, other):
    assert compute_sums(one) + compute_sums(other) == compute_sums(one + other)


@given(st.lists(st.integers(0, 1), min_size=2, max_size=60))
@settings(max_examples=50, deadline=None)
def test_single_answers_have_the_modified_wilson_interval(scores):
    result = clustered_share(compute_sums([[score] for score in scores]))
    assert (result.low, result.high) == pytest.approx(modified_wilson(sum(scores), len(scores)))
    assert result.effective_n == pytest.approx(len(scores))


def share_with_wrong_answers(wrong, items=10, each=20):
    groups = [[1] * each for _ in range(items)]
    groups[0][:wrong] = [0] * wrong
    return clustered_share(compute_sums(groups))


def test_one_wrong_answer_of_200_hardly_changes_the_effective_number_of_answers():
    none_wrong, one_wrong = share_with_wrong_answers(0), share_with_wrong_answers(1)
    assert none_wrong.effective_n == pytest.approx(10)
    assert 10 <= one_wrong.effective_n < 20
    assert one_wrong.high - one_wrong.low > 0.2


@given(st.lists(st.lists(st.integers(0, 1), min_size=6, max_size=6), min_size=2, max_size=12))
@settings(max_examples=100, deadline=None)
def test_the_effective_number_of_answers_lies_between_the_items_and_the_answers(groups):
    assert len(groups) - 1e-9 <= clustered_share(compute_sums(groups)).effective_n <= 6 * len(groups)


def test_few_items_widen_the_interval_for_their_uncertain_design_effect():
    # Half of each item's answers are right, so only the added items differ. A quarter of one at each end, of 10
    # answers: D = 2 * .25 * 10^2 * .25 / ((40 + 5) * .25) = 10/9.
    result = clustered_share(compute_sums([[1, 0] * 5] * 4))
    factor = (student.ppf(0.975, 39) / student.ppf(0.975, 3)) ** 2
    assert result.effective_n == pytest.approx(36 * factor)
    assert result.effective_n == pytest.approx(14.54, abs=0.01)


@pytest.mark.parametrize("correlation", [0, 0.1, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("p", [0.5, 0.7, 0.9, 0.95, 0.99])
def test_intervals_for_10_items_with_20_repetitions_cover_in_93_of_100_samples(p, correlation):
    draw = np.random.default_rng(7)
    noise_variance = 1 / correlation - 1 if correlation else 0
    chances = (
        draw.beta(p * noise_variance, (1 - p) * noise_variance, (1500, 10)) if correlation else np.full((1500, 10), p)
    )
    right = draw.binomial(20, chances)
    intervals = [clustered_share(_compute_sums(row, 20)) for row in right]
    covered = np.mean([interval.low - 1e-9 <= p <= interval.high + 1e-9 for interval in intervals])
    assert covered > 0.93 - 2 * 0.0066  # .0066 is the standard error of a share of .93 of 1,500.


def _compute_sums(right, each):
    right = right.astype(float)
    n = right.size * each
    squares = float(right @ right)
    return ClusterSums(n, right.sum(), right.sum(), right.size, squares, each * right.sum(), right.size * each**2)


@given(marks)
@settings(max_examples=100, deadline=None)
def test_an_interval_contains_its_share_and_is_never_narrower_than_for_independent_answers(groups):
    sums = compute_sums(groups)
    result, (low, high) = clustered_share(sums), modified_wilson(sums.total, sums.n)
    assert 0 <= result.low <= result.share + 1e-12
    assert result.share - 1e-12 <= result.high <= 1
    assert result.high - result.low >= high - low - 1e-9


def test_repeating_every_answer_adds_no_certainty():
    once = [[1], [0], [1], [1], [0], [0], [1], [1]]
    result, expected = (
        clustered_share(compute_sums([group * 10 for group in once])),
        clustered_share(compute_sums(once)),
    )
    assert result.n == 80
    assert result.effective_n == pytest.approx(8)
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))


def test_answers_that_are_all_correct_count_once_per_item():
    result, expected = clustered_share(compute_sums([[1, 1, 1]] * 10)), wilson(10, 10)
    assert (result.share, result.effective_n) == (1, 10)
    assert (result.low, result.high) == pytest.approx((expected.low, 1))


def test_one_item_gives_a_share_without_an_interval_and_no_items_give_no_share():
    result = clustered_share(compute_sums([[1, 0, 1, 1]]))
    assert (result.share, result.low, result.high, result.se) == (0.75, None, None, None)
    assert clustered_share(ClusterSums()) is None
    assert clustered_mean(ClusterSums()) is None


@pytest.mark.parametrize("start", [0, 3, 1e9, -1e9])
def test_scores_near_a_billion_have_the_spread_of_scores_near_zero(start):
    items = [0, 0, 1, 1, 2, 2, 3, 3]
    scores = [0, 1, 1, 1, 0, 0, 0, 1]
    result = estimate_mean(sum_clusters([start + score for score in scores], items))
    expected = expect_clustered_mean(group_by_cluster(scores, items))
    assert result.mean - start == expected.mean == 0.5
    assert result.sd == pytest.approx(statistics.stdev(scores))
    assert result.se == pytest.approx(expected.se)
    if start:  # Scores of 0 and 1 are a share, with another interval.
        assert (result.low - start, result.high - start) == pytest.approx((expected.low, expected.high), abs=1e-6)


@given(ratings, ratings)
@settings(max_examples=50, deadline=None)
def test_sums_about_different_origins_can_be_added(some, others):
    near, far = compute_sums(some).about(4.0), compute_sums(others).about(1000.0)
    expected = compute_sums([*some, *others])
    for result in (near + far, far + near, ClusterSums() + near + far):
        assert [getattr(result.about(0.0), name) for name in ClusterSums.__slots__] == pytest.approx(
            [getattr(expected, name) for name in ClusterSums.__slots__], abs=1e-4
        )
