import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.statistics.concordance import compute_correlation, lins_concordance
from grading_app.statistics.correlation import pearson
from grading_app.statistics.ratings import Ratings
from tests.unit.published_ratings import NAN, tables

# J. M. Bland & D. G. Altman (1986), Lancet 327, 307-310, table 1: peak flow, first readings of two meters, 17 people.
WRIGHT = [494, 395, 516, 434, 476, 557, 413, 442, 650, 433, 417, 656, 267, 478, 178, 423, 427]
MINI = [512, 430, 520, 428, 500, 600, 364, 380, 658, 445, 432, 626, 260, 477, 259, 350, 451]


def estimate_concordance(table):
    return lins_concordance(Ratings.from_table(table)).estimate


def approximate(value):
    return None if value is None else pytest.approx(value, abs=1e-9)


def test_bland_and_altmans_meters():
    # T. J. Steichen & N. J. Cox (1998), "Concordance correlation coefficient", Stata Technical Bulletin 43, 35-39.
    result = lins_concordance(Ratings.from_table(np.array([WRIGHT, MINI]).T)).result()
    assert result.estimate == pytest.approx(0.943, abs=5e-4)
    assert result.low < 0.943 < result.high < 1
    assert (result.units, result.ratings) == (17, 34)


def test_concordance_by_hand():
    # x = 1 2 3, y = 2 4 3: means 2 and 3, variances 2/3 and 2/3, covariance 1/3: 2/3 / (4/3 + 1) = 2/7.
    assert estimate_concordance([[1, 2], [2, 4], [3, 3]]) == pytest.approx(2 / 7)


@given(tables(raters=(2, 2), missing=False), st.floats(-9, 9), st.floats(0.1, 9))
def test_concordance_does_not_depend_on_a_common_unit_or_the_order_of_raters(table, shift, scale):
    assert estimate_concordance(shift + scale * table) == approximate(estimate_concordance(table))
    assert estimate_concordance(table[:, ::-1]) == approximate(estimate_concordance(table))


@given(tables(raters=(2, 2), units=(3, 12), missing=False))
def test_concordance_is_never_further_from_zero_than_correlation(table):
    first, second = table.T
    concordance, r = estimate_concordance(table), pearson(first.tolist(), second.tolist())
    if r is not None:
        assert abs(concordance) <= abs(r.r) + 1e-9
        assert compute_correlation(first, second, np.ones((1, len(table))))[0] == pytest.approx(r.r)


def test_perfect_agreement_is_one_and_a_shifted_line_is_less():
    perfect, shifted = ([[value, value + shift] for value in (1, 2, 4)] for shift in (0, 1))
    result = lins_concordance(Ratings.from_table(perfect)).result()
    assert (result.estimate, result.low, result.high) == (pytest.approx(1), None, None)
    assert estimate_concordance(shifted) == pytest.approx(2 * 14 / 9 / (2 * 14 / 9 + 1))


def test_few_units_have_no_interval_and_equal_constants_have_no_concordance():
    assert lins_concordance(Ratings.from_table([[1, 2], [2, 1]])).result().low is None
    assert estimate_concordance([[0.1, 0.1], [0.1, 0.1]]) is None
    assert estimate_concordance([[1, 2], [1, 2]]) == 0
    result = lins_concordance(Ratings.from_table([[1, 2], [2, 1], [NAN, 2]])).result()
    assert (result.units, result.left_out) == (2, 1)
    with pytest.raises(ValueError, match="two raters, not 3"):
        estimate_concordance([[1, 2, 3]])


@pytest.mark.parametrize("shift", [0.0, 0.6])
def test_the_interval_has_the_stated_coverage(shift):
    # 800 samples of 40 pairs, correlated .8, one mean shifted: rho_c = 1.6 / (2 + shift^2). 4 errors of .95 are .031.
    draw = np.random.default_rng(15)
    x = draw.standard_normal((800, 40))
    y = 0.8 * x + 0.6 * draw.standard_normal((800, 40)) + shift
    intervals = [
        lins_concordance(Ratings.from_table(np.stack(pair, axis=1))).result() for pair in zip(x, y, strict=True)
    ]
    truth = 1.6 / (2 + shift**2)
    assert np.mean([interval.low <= truth <= interval.high for interval in intervals]) == pytest.approx(0.95, abs=0.031)
