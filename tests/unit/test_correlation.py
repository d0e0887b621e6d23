import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import t as student

from grading_app.statistics.correlation import JACKKNIFE, pearson

values = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
# F. J. Anscombe (1973), "Graphs in statistical analysis", The American Statistician 27, first set.
ANSCOMBE_X = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
ANSCOMBE_Y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]


def test_pearson_gives_anscombes_correlation_and_its_interval():
    result = pearson(ANSCOMBE_X, ANSCOMBE_Y)
    assert result.r == pytest.approx(0.81642, abs=5e-6)
    # R's cor.test prints 0.4243912 and 0.9506933, which is Fisher's interval. The jackknife's is wider here.
    assert (result.low, result.high) == (pytest.approx(0.3873127), pytest.approx(0.9547883))
    assert result.p == pytest.approx(0.00217, abs=5e-6)


@given(st.lists(st.tuples(values, values), min_size=4, max_size=30))
def test_pearson_matches_scipy(pairs):
    from scipy.stats import pearsonr

    x, y = (list(column) for column in zip(*pairs, strict=True))
    assume(max(x) - min(x) > 1 and max(y) - min(y) > 1)
    result, library = pearson(x, y), pearsonr(x, y)
    assert result.r == pytest.approx(library.statistic, abs=1e-6)
    if abs(result.r) < 0.999 and result.low is not None:
        interval = library.confidence_interval()
        # The jackknife's interval may be wider; the tests below have its formula.
        assert result.low <= interval.low + 1e-4
        assert result.high >= interval.high - 1e-4
        if result.method != JACKKNIFE:
            assert (result.low, result.high) == pytest.approx((interval.low, interval.high), abs=1e-4)
        assert result.p == pytest.approx(library.pvalue, abs=1e-6)


def test_points_on_a_line_have_no_interval():
    result = pearson([1, 2, 3, 4], [10, 20, 30, 40])
    assert (result.r, result.low, result.high, result.p) == (1, None, None, 0)


@pytest.mark.parametrize(("x", "y"), [([], []), ([1], [2]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0.1, 0.1, 0.1])])
def test_without_variance_there_is_no_pearson(x, y):
    assert pearson(x, y) is None


def test_columns_of_different_lengths_are_rejected():
    with pytest.raises(ValueError, match="cannot pair"):
        pearson([1, 2], [1])


def test_few_pairs_have_no_interval():
    result = pearson([1, 2, 3], [1, 3, 2])
    assert result.r == pytest.approx(0.5)
    assert (result.low, result.high) == (None, None)
    assert pearson([1, 2], [1, 3]).p is None


def test_an_odd_pair_gets_the_jackknifes_error():
    x = [0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 0.7, 6.0]
    y = [0.3, 0.1, 0.4, 0.2, 0.6, 0.4, 0.9, 3.0]
    without = [math.atanh(np.corrcoef(np.delete(x, index), np.delete(y, index))[0, 1]) for index in range(8)]
    error = math.sqrt(7 * np.var(without))
    result = pearson(x, y)
    assert math.atanh(result.high) - math.atanh(result.r) == pytest.approx(student.ppf(0.975, 7) * error)
    assert -1 <= result.low < result.r < result.high <= 1


@pytest.mark.parametrize("items", [10, 40])
def test_the_interval_of_r_covers_skewed_values(items):
    draw = np.random.default_rng(5)
    x, e = draw.exponential(1, (2, 500, items))
    result = [pearson(list(first), list(0.6 * first + 0.8 * second)) for first, second in zip(x, e, strict=True)]
    covered = np.mean([first.low <= 0.6 <= first.high for first in result])
    assert covered > 0.93 - 2 * 0.0114  # .0114 is the standard error of a share of .93 of 500. Fisher's covers .85.
