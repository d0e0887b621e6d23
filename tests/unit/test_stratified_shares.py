"""Shares compared within strata, against statsmodels and published intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import StratifiedTable
from statsmodels.stats.proportion import confint_proportions_2indep

from grading_app.results.parametric.point_counts import CellCounts
from grading_app.results.parametric.surface import estimate_accuracy, subtract_estimates
from grading_app.statistics.stratified_shares import (
    RankRange,
    mantel_haenszel,
    overlap_groups,
    rank_rows,
)

STRATA = st.lists(st.tuples(*[st.integers(1, 30)] * 4), min_size=1, max_size=6)


@given(STRATA)
def test_the_test_over_strata_matches_statsmodels(tables):
    tables = np.array(tables, dtype=float)  # right, wrong, others right, others wrong
    sizes, other_sizes = tables[:, 0] + tables[:, 1], tables[:, 2] + tables[:, 3]
    _, p = mantel_haenszel(tables[:, 0], sizes, tables[:, 2], other_sizes)
    expected = StratifiedTable([row.reshape(2, 2) for row in tables]).test_null_odds(correction=False).pvalue
    assert float(p) == pytest.approx(expected, abs=1e-9)


def test_more_answers_at_a_hard_point_do_not_lower_a_model():
    # Both have 90 % at the easy point and 30 % at the hard one; the second was asked mostly the hard one.
    right, sizes = np.array([[90.0, 30.0], [9.0, 300.0]]), np.array([[100.0, 100.0], [10.0, 1000.0]])
    assert rank_rows(right, sizes) == [RankRange(1, 2), RankRange(1, 2)]


def test_ranks_separate_only_rows_that_the_corrected_test_separates():
    right, sizes = np.array([[95.0], [90.0], [50.0], [5.0]]), np.full((4, 1), 100.0)
    assert [str(rank) for rank in rank_rows(right, sizes)] == ["1–2", "1–2", "3", "4"]


def test_a_correction_over_many_tests_hides_a_small_difference():
    two, many = np.array([[60.0], [45.0]]), np.array([[60.0], [45.0], *[[52.0]] * 20])
    assert rank_rows(two, np.full((2, 1), 100.0))[1].first == 2  # p = .034
    assert rank_rows(many, np.full((22, 1), 100.0))[1].first == 1


def test_equal_models_are_separated_in_at_most_five_of_a_hundred_tables():
    rng = np.random.default_rng(7)
    chances = np.array([0.95, 0.8, 0.5, 0.2])
    wrong = 0
    for _ in range(400):
        sizes = rng.integers(16, 128, (6, 4)).astype(float)
        ranks = rank_rows(rng.binomial(sizes.astype(int), chances).astype(float), sizes)
        wrong += any(rank.first > 1 for rank in ranks)
    assert wrong / 400 <= 0.07  # 5 %, within three standard errors.


def test_strata_with_only_one_side_are_ignored():
    alone = mantel_haenszel(np.array([9.0]), np.array([10.0]), np.array([2.0]), np.array([10.0]))[1]
    p_value = mantel_haenszel(np.array([9.0, 5.0]), np.array([10.0, 5.0]), np.array([2.0, 0.0]), np.array([10.0, 0.0]))[
        1
    ]
    assert float(p_value) == float(alone)


@pytest.mark.parametrize(
    ("first", "second", "published"),
    [  # Newcombe (1998), table II, method 10; the first share minus the second.
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.1705, 0.8090)),
        ((10, 10), (0, 20), (0.6791, 1.0)),
        ((0, 10), (0, 10), (-0.2775, 0.2775)),
    ],
)
def test_the_interval_of_a_difference_matches_newcombes(first, second, published):
    estimates = [estimate_accuracy([CellCounts(1, 0, n, right, n, 0, 0, 0.0, 0, 0)]) for right, n in (second, first)]
    _, low, high = subtract_estimates(*estimates)
    assert (low, high) == pytest.approx(published, abs=6e-5)
    expected = confint_proportions_2indep(*first, *second, method="newcomb", compare="diff")
    assert (low, high) == pytest.approx(expected, abs=1e-9)


def test_overlapping_intervals_form_the_largest_groups_from_the_top():
    result = overlap_groups([(0.8, 0.9), (0.7, 0.85), (0.6, 0.75), (0.1, 0.2)])
    assert result == [[0, 1], [1, 2], [3]]
    assert overlap_groups([]) == []
