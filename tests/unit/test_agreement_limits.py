"""Bland and Altman's limits against their published example and their required properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grading_app.statistics.judge_bias import limits_of_agreement
from grading_app.statistics.ratings import Ratings

# Peak flow by a large and by a mini meter, first readings: J. M. Bland & D. G. Altman (1986), Lancet 327, table 1.
LARGE = [494, 395, 516, 434, 476, 557, 413, 442, 650, 433, 417, 656, 267, 478, 178, 423, 427]
MINI = [512, 430, 520, 428, 500, 600, 364, 380, 658, 445, 432, 626, 260, 477, 259, 350, 451]


def limits(judge, people, **options):
    return limits_of_agreement(
        Ratings.from_table(np.column_stack([judge, people])), 0, seed=1, resamples=200, **options
    )


def test_the_published_example():
    result = limits(LARGE, MINI)
    assert result.mean == pytest.approx(-2.1, abs=0.05)
    assert result.low.estimate == pytest.approx(-78.1, abs=0.3)  # The paper reaches two SDs far: -79.7 and 75.5.
    assert result.high.estimate == pytest.approx(73.9, abs=0.3)
    reach = (result.high.estimate - result.mean) / 1.96
    assert reach == pytest.approx(38.8, abs=0.05)


def test_means_and_differences_are_computed_per_unit():
    result = limits([1, 4], [3, 4])
    assert result.means == (2, 4)
    assert result.differences == (-2, 0)


def test_people_enter_as_their_mean_and_incomplete_units_are_excluded():
    ratings = Ratings.from_table([[5, 4, 2], [3, np.nan, np.nan], [np.nan, 1, 1], [2, np.nan, 2]])
    result = limits_of_agreement(ratings, 0, seed=1, resamples=100)
    assert result.differences == (2, 0)
    assert (result.low.units, result.low.left_out) == (2, 2)


def test_one_unit_has_a_difference_and_no_limits():
    result = limits([3], [1])
    assert result.mean == 2
    assert result.low.estimate is None


def test_resampling_draws_whole_items():
    judge, people = np.tile([1, 5, 3, 2], 2), np.tile([2, 3, 3, 1], 2)
    plain, clustered = (limits(judge, people, items=items) for items in (None, {n: n % 4 for n in range(8)}))
    assert (plain.low.clusters, clustered.low.clusters) == (8, 4)
    assert clustered.low.high - clustered.low.low > plain.low.high - plain.low.low


def test_raters_without_shared_units_are_refused():
    with pytest.raises(ValueError, match="by the judge and by people"):
        limits([np.nan, 1], [1, np.nan])


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=20), st.integers(-5, 5))
def test_a_constant_bias_shifts_both_limits(pairs, more):
    judge, people = np.array(pairs, dtype=float).T
    plain, moved = limits(judge, people), limits(judge + more, people)
    for first, second in ((plain.low, moved.low), (plain.high, moved.high)):
        assert second.estimate == pytest.approx(first.estimate + more)
    assert moved.mean == pytest.approx(plain.mean + more)
