import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.statistics.intraclass import FORMS, intraclass_correlation, mean_squares
from grading_app.statistics.ratings import Ratings
from tests.unit.published_ratings import NAN, SHROUT_FLEISS, tables

forms = st.sampled_from(FORMS)


def icc(table, form):
    return intraclass_correlation(Ratings.from_table(table), form).estimate


def approximate(value):
    return None if value is None else pytest.approx(value, abs=1e-7)


def test_the_analysis_of_variance_of_shrout_and_fleiss():
    # Their table 3: between targets 11.24, within 6.26, between judges 32.49, residual 1.02.
    result = mean_squares(Ratings.from_table(SHROUT_FLEISS), np.ones((1, 6)))
    squares = (result.rows, result.within, result.columns, result.error)
    assert [round(float(square[0]), 2) for square in squares] == [11.24, 6.26, 32.49, 1.02]


@pytest.mark.parametrize(
    ("form", "estimate", "low", "high"),
    # Estimates: their table 4. Intervals: as two decimals of the same formulas in common packages for these data.
    [
        ("1,1", 0.17, -0.13, 0.72),
        ("2,1", 0.29, 0.02, 0.76),
        ("3,1", 0.71, 0.34, 0.95),
        ("1,k", 0.44, -0.88, 0.91),
        ("2,k", 0.62, 0.07, 0.93),
        ("3,k", 0.91, 0.68, 0.99),
    ],
)
def test_the_six_correlations_of_shrout_and_fleiss(form, estimate, low, high):
    result = intraclass_correlation(Ratings.from_table(SHROUT_FLEISS), form).result()
    assert result.estimate == pytest.approx(estimate, abs=5.1e-3)
    assert (result.low, result.high) == (pytest.approx(low, abs=5.1e-3), pytest.approx(high, abs=5.1e-3))
    assert (result.formula, result.units, result.raters, result.ratings) == (f"ICC({form})", 6, 4, 24)


@given(tables(missing=False), forms, st.randoms(use_true_random=False))
def test_correlations_do_not_depend_on_names_of_raters_and_units(table, form, random):
    columns, rows = list(range(table.shape[1])), list(range(table.shape[0]))
    random.shuffle(columns)
    random.shuffle(rows)
    assert icc(table[rows][:, columns], form) == approximate(icc(table, form))


@given(tables(missing=False), forms, st.floats(-50, 50), st.floats(0.1, 20))
def test_correlations_do_not_depend_on_the_unit_of_measurement(table, form, shift, scale):
    assert icc(shift + scale * table, form) == approximate(icc(table, form))


@given(st.lists(st.integers(1, 7), min_size=2, max_size=12), st.integers(2, 5), forms)
def test_perfect_agreement_is_one(column, raters, form):
    result = intraclass_correlation(Ratings.from_table([[value] * raters for value in column]), form).result()
    if len(set(column)) > 1:
        # Not an interval of 1 to 1: other units may differ.
        assert (result.estimate, result.low, result.high) == (pytest.approx(1), None, None)
    else:
        assert (result.estimate, result.low, result.high) == (None, None, None)


@given(tables(missing=False), st.lists(st.integers(-3, 3), min_size=5, max_size=5))
def test_consistency_ignores_the_level_of_a_rater_and_agreement_does_not(table, levels):
    moved = table + np.array(levels[: table.shape[1]])
    assert icc(moved, "3,1") == approximate(icc(table, "3,1"))
    strict, forgiving = icc([[1, 4], [2, 5], [3, 6]], "2,1"), icc([[1, 4], [2, 5], [3, 6]], "3,1")
    assert (round(strict, 3), forgiving) == (0.182, 1)


@given(tables(missing=False), st.sampled_from("123"))
def test_the_correlation_of_the_mean_follows_from_spearman_and_brown(table, model):
    single, mean, k = icc(table, f"{model},1"), icc(table, f"{model},k"), table.shape[1]
    if single is not None and mean is not None:
        assert mean == pytest.approx(k * single / (1 + (k - 1) * single), rel=1e-6, abs=1e-6)


def test_incompletely_rated_units_are_excluded():
    result = intraclass_correlation(Ratings.from_table([*SHROUT_FLEISS, [1, 2, 3, NAN]]), "3,1").result()
    assert (result.estimate, result.units, result.left_out) == (pytest.approx(0.715, abs=5e-4), 6, 1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("table", [[[1, 2]], [[0.1, 0.1], [0.1, 0.1]], [[NAN, 1]]])
def test_without_variance_there_is_no_correlation(table, form):
    assert icc(table, form) is None


@pytest.mark.parametrize(
    ("table", "form", "message"), [([[1], [2]], "1,1", "two raters"), ([[1, 2]], "4,1", "not 4,1")]
)
def test_unknown_forms_and_single_raters_are_rejected(table, form, message):
    with pytest.raises(ValueError, match=message):
        icc(table, form)


@pytest.mark.parametrize(("form", "truth"), [("1,1", 4 / 10), ("2,1", 4 / 10), ("3,1", 4 / 9), ("2,k", 4 / 5.5)])
def test_intervals_have_the_stated_coverage(form, truth):
    # Units of variance 4, raters of variance 1, noise of variance 5; 30 units, 4 raters; 600 samples, so 4 standard
    # errors of .95 are .036. One-way ratings have fresh raters for each unit: all of the 6 is then noise. The interval
    # of (2,1) is an approximation, and known to be somewhat wide with four raters.
    draw = np.random.default_rng(8)
    units, raters = 2 * draw.standard_normal((600, 30, 1)), draw.standard_normal((600, 1, 4))
    if form == "1,1":
        raters = draw.standard_normal((600, 30, 4))
    samples = units + raters + np.sqrt(5) * draw.standard_normal((600, 30, 4))
    intervals = [intraclass_correlation(Ratings.from_table(sample), form).result() for sample in samples]
    assert 0.914 <= np.mean([interval.low <= truth <= interval.high for interval in intervals]) <= 0.986
