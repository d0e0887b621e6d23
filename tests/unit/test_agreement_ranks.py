import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import friedmanchisquare, rankdata, spearmanr

from grading_app.statistics.agreement_coefficients import Ranking, kendalls_w
from grading_app.statistics.ratings import Ratings
from tests.unit.published_ratings import NAN, tables

# S. Siegel (1956), "Nonparametric statistics for the behavioral sciences", ch. 9: three executives rank six applicants.
APPLICANTS = np.array([[1, 6, 3, 2, 5, 4], [1, 5, 6, 4, 2, 3], [6, 3, 2, 5, 4, 1]]).T
# The same chapter (after Kendall 1948): three rankings of ten objects, with ties.
TIED = np.array(
    [
        [1, 4.5, 2, 4.5, 3, 7.5, 6, 9, 7.5, 10],
        [2.5, 1, 2.5, 4.5, 4.5, 8, 9, 6.5, 10, 6.5],
        [2, 1, 4.5, 4.5, 4.5, 4.5, 8, 8, 8, 10],
    ]
).T


def estimate_kendalls_w(table):
    return kendalls_w(Ratings.from_table(table)).estimate


def test_siegels_executives():
    result = kendalls_w(Ratings.from_table(APPLICANTS)).result()
    assert result.estimate == pytest.approx(0.16, abs=5e-3)
    assert (result.units, result.raters, result.ratings) == (6, 3, 18)


def test_siegels_tied_ranks():
    assert estimate_kendalls_w(TIED) == pytest.approx(0.828, abs=5e-4)


@given(tables(raters=(3, 5), units=(3, 12), missing=False))
def test_w_is_the_friedman_statistic_over_its_largest_value(table):
    assume(any(len(set(column)) > 1 for column in table.T))
    units, raters = table.shape
    assert estimate_kendalls_w(table) == pytest.approx(
        friedmanchisquare(*table).statistic / (raters * (units - 1)), abs=1e-9
    )


@given(st.lists(st.permutations(range(8)), min_size=3, max_size=3))
def test_w_is_the_mean_rank_correlation_rescaled_to_0_and_1(rankings):
    mean = np.mean(
        [spearmanr(rankings[first], rankings[second]).statistic for first, second in ((0, 1), (0, 2), (1, 2))]
    )
    assert estimate_kendalls_w(np.array(rankings).T) == pytest.approx((2 * mean + 1) / 3)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=12), st.integers(2, 5))
def test_identical_orders_give_perfect_concordance(column, raters):
    result = estimate_kendalls_w([[value * factor for factor in range(1, raters + 1)] for value in column])
    assert result == (pytest.approx(1) if len(set(column)) > 1 else None)


def test_incompletely_ranked_units_are_excluded():
    result = kendalls_w(Ratings.from_table(np.vstack([TIED, [NAN, 1, 2]]))).result()
    assert (result.estimate, result.units, result.left_out) == (pytest.approx(0.828, abs=5e-4), 10, 1)
    with pytest.raises(ValueError, match="two raters"):
        estimate_kendalls_w([[1], [2]])


@given(st.lists(st.integers(1, 6), min_size=1, max_size=15), st.data())
def test_weighted_midranks_equal_those_of_repeated_values(values, data):
    times = data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    written = np.repeat(np.array(values, dtype=float), times)
    result = Ranking(np.array(values, dtype=float)).midranks(np.array([times], dtype=float))[0]
    assert np.repeat(result, times).tolist() == rankdata(written).tolist()
