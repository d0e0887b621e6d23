"""Means and shares from sums alone equal those from the scores themselves."""

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalsite.lib.stats.wilson import wilson
from grading_app.statistics.clusters import ClusterSums, clustered_mean_of, clustered_share_of
from tests.unit.clustering import clustered_mean, grouped, sums_of
from tests.unit.realdata import csv_rows

ratings = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=6), min_size=1, max_size=12)
marks = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=2, max_size=12)


@given(ratings)
@settings(max_examples=100, deadline=None)
def test_a_mean_from_sums_is_the_mean_from_scores(groups):
    found, expected = clustered_mean_of(sums_of(groups)), clustered_mean(groups)
    assert (found.n, found.clusters) == (sum(map(len, groups)), len(groups))
    for name in expected._fields:
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-6), name


def test_a_clustered_error_by_hand():
    # Mean 4. Residual sums of the clusters: (1-4)+(3-4) = -4, (5-4) = 1, (4-4)+(7-4) = 3. 16 + 1 + 9 = 26.
    # se^2 = 3/2 * 26 / 5^2 = 1.56; t(.975, 2) = 4.302653.
    found = clustered_mean_of(sums_of([[1, 3], [5], [4, 7]]))
    assert (found.mean, found.clusters, found.n) == (4, 3, 5)
    assert found.se == pytest.approx(math.sqrt(1.56))
    assert found.high - found.mean == pytest.approx(4.302653 * math.sqrt(1.56), abs=1e-5)


@given(st.lists(st.lists(st.integers(1, 7), min_size=3, max_size=3), min_size=2, max_size=12))
@settings(max_examples=50, deadline=None)
def test_equal_clusters_give_the_error_of_their_means(groups):
    means = [sum(group) / 3 for group in groups]
    found = clustered_mean_of(sums_of(groups))
    assert found.se == pytest.approx(statistics.stdev(means) / math.sqrt(len(groups)), abs=1e-6)


def test_recorded_ratings_of_one_image_go_together():
    rows = [row for row in csv_rows("uniform40-trials-gemma.csv") if row["dimension"] == "valence"]
    sums = sums_of(grouped([int(row["rating"]) for row in rows], [row["image_id"] for row in rows]))
    found = clustered_mean_of(sums)
    assert (found.n, found.clusters) == (800, 40)
    # Twenty answers that never differ would inflate by sqrt(20) = 4.47, and by sqrt(40/39) for the few clusters.
    assert 4.3 < found.se / (sums.sd / math.sqrt(800)) < 4.53


@given(ratings, ratings)
@settings(max_examples=50, deadline=None)
def test_sums_of_disjoint_items_add_up(one, other):
    assert sums_of(one) + sums_of(other) == sums_of(one + other)


@given(st.lists(st.integers(0, 1), min_size=2, max_size=60).filter(lambda scores: 0 < sum(scores) < len(scores)))
@settings(max_examples=50, deadline=None)
def test_with_one_answer_an_item_the_interval_is_wilsons(scores):
    found, expected = clustered_share_of(sums_of([[score] for score in scores])), wilson(sum(scores), len(scores))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.effective_n == pytest.approx(len(scores))


@given(marks)
@settings(max_examples=100, deadline=None)
def test_an_interval_holds_its_share_and_is_never_narrower_than_for_independent_answers(groups):
    sums = sums_of(groups)
    found, naive = clustered_share_of(sums), wilson(sums.total, sums.n)
    assert 0 <= found.low <= found.share + 1e-12
    assert found.share - 1e-12 <= found.high <= 1
    assert found.high - found.low >= naive.high - naive.low - 1e-9


def test_repeating_every_answer_adds_no_certainty():
    once = [[1], [0], [1], [1], [0], [0], [1], [1]]
    found, expected = clustered_share_of(sums_of([group * 10 for group in once])), clustered_share_of(sums_of(once))
    assert found.n == 80
    assert found.effective_n == pytest.approx(8)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_answers_that_are_all_right_count_once_an_item():
    found, expected = clustered_share_of(sums_of([[1, 1, 1]] * 10)), wilson(10, 10)
    assert (found.share, found.effective_n) == (1, 10)
    assert (found.low, found.high) == pytest.approx((expected.low, 1))


def test_one_item_gives_a_share_without_an_interval_and_none_gives_nothing():
    found = clustered_share_of(sums_of([[1, 0, 1, 1]]))
    assert (found.share, found.low, found.high, found.se) == (0.75, None, None, None)
    assert clustered_share_of(ClusterSums()) is None
    assert clustered_mean_of(ClusterSums()) is None
