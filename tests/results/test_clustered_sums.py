"""Means and shares from sums alone equal those from the scores themselves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grading_app.analysis.clusters import ClusterSums, clustered_mean_of, clustered_share_of
from grading_app.analysis.statistics import clustered_mean, wilson

ratings = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=6), min_size=1, max_size=12)
marks = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=2, max_size=12)


def sums_of(groups):
    flat = [value for group in groups for value in group]
    return ClusterSums(
        n=len(flat),
        total=sum(flat),
        squares=sum(value**2 for value in flat),
        clusters=len(groups),
        totals_squared=sum(sum(group) ** 2 for group in groups),
        sizes_by_totals=sum(len(group) * sum(group) for group in groups),
        sizes_squared=sum(len(group) ** 2 for group in groups),
    )


@given(ratings)
@settings(max_examples=100, deadline=None)
def test_a_mean_from_sums_is_the_mean_from_scores(groups):
    flat = [value for group in groups for value in group]
    expected = clustered_mean(flat, [at for at, group in enumerate(groups) for _ in group])
    found = clustered_mean_of(sums_of(groups))
    for name in ("n", "clusters", "mean", "se", "low", "high", "naive_se"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-6), name


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
