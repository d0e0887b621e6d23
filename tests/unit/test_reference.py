"""Comparisons of item means with a reference, against published values and scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from grading_app.statistics import reference

# A. R. Cushny & A. R. Peebles (1905), extra hours of sleep under two drugs, as analysed by "Student" (1908).
FIRST = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
SECOND = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
samples = st.lists(st.floats(-50, 50).map(lambda value: round(value, 2)), min_size=4, max_size=30, unique=True)


def test_the_paired_t_test_of_the_sleep_data():
    result = reference.paired_difference(FIRST, SECOND)
    assert (result.t, result.p) == (pytest.approx(-4.062128, abs=1e-6), pytest.approx(0.00283289, abs=1e-8))
    assert result.interval == pytest.approx((-2.4598858, -0.7001142), abs=1e-6)


def test_welchs_test_of_the_sleep_data():
    result = reference.welch_difference(FIRST, SECOND)
    assert (result.t, result.p) == (pytest.approx(-1.860813, abs=1e-6), pytest.approx(0.0793941, abs=1e-7))


def test_the_interval_of_d_has_the_noncentral_t_bounds():
    result = reference.paired_difference(FIRST, SECOND)
    low, high = (end * np.sqrt(10) for end in result.effect_interval)
    assert stats.nct.cdf(result.t, 9, low) == pytest.approx(0.975, abs=1e-6)
    assert stats.nct.cdf(result.t, 9, high) == pytest.approx(0.025, abs=1e-6)


@settings(max_examples=30)
@given(samples, samples)
def test_paired_and_welchs_tests_equal_scipys(x, y):
    n = min(len(x), len(y))
    a, b = np.array(x[:n]), np.array(y[:n])
    paired = reference.paired_difference(a, b)
    if paired is not None:
        expected = stats.ttest_rel(a, b)
        assert (paired.t, paired.p) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))
    expected = stats.ttest_ind(x, y, equal_var=False)
    welch = reference.welch_difference(np.array(x), np.array(y))
    assert (welch.t, welch.p) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))


@settings(max_examples=30)
@given(samples, samples)
def test_lines_and_rank_correlations_equal_scipys(x, y):
    n = min(len(x), len(y))
    a, b = np.array(x[:n]), np.array(y[:n])
    line, expected = reference.least_squares(a, b), stats.linregress(a, b)
    assert (line.slope, line.intercept) == (
        pytest.approx(expected.slope, rel=1e-6, abs=1e-9),
        pytest.approx(expected.intercept, rel=1e-6, abs=1e-9),
    )
    reach = stats.t.ppf(0.975, n - 2)
    if line.slope_interval is None:  # All items lie on the line.
        assert expected.stderr == pytest.approx(0, abs=1e-6)
    else:
        assert line.slope_interval[1] - line.slope == pytest.approx(reach * expected.stderr, rel=1e-6, abs=1e-9)
    assert line.r_squared == pytest.approx(expected.rvalue**2, abs=1e-9)
    assert reference.spearman(a, b)[0] == pytest.approx(stats.spearmanr(a, b).statistic)


def test_ties_have_midranks():
    x, y = np.array([1.0, 2, 2, 3, 5, 5]), np.array([2.0, 1, 2, 2, 4, 4])
    assert reference.spearman(x, y)[0] == pytest.approx(stats.spearmanr(x, y).statistic)


def test_deming_recovers_a_line_with_errors_in_both():
    random = np.random.default_rng(5)
    truth = random.normal(4, 1.5, 4000)
    x, y = truth + random.normal(0, 0.7, 4000), 0.5 + 0.8 * truth + random.normal(0, 0.7, 4000)
    line = reference.deming(x[:400], y[:400])
    assert line.slope_interval[0] < 0.8 < line.slope_interval[1]
    assert reference.least_squares(x, y).slope_interval[1] < 0.8, "least squares flattens the line"


def test_equivalence_matches_two_one_sided_tests():
    apart = FIRST - SECOND
    error = apart.std(ddof=1) / np.sqrt(10)
    p = reference.equivalence_p(10, apart.mean(), error, 3.0)
    expected = max(
        stats.ttest_1samp(apart, -3.0, alternative="greater").pvalue,
        stats.ttest_1samp(apart, 3.0, alternative="less").pvalue,
    )
    assert p == pytest.approx(expected)
    with pytest.raises(ValueError, match="no equivalence test"):
        reference.equivalence_p(10, 0.0, 0.0, 1.0)


def test_constant_items_have_no_statistics():
    flat = np.full(12, 3.0)
    assert reference.paired_difference(FIRST, FIRST) is None
    assert reference.least_squares(flat, FIRST[:1].repeat(12)) is None
    assert reference.spearman(flat, np.arange(12.0)) is None
    assert reference.error_interval(flat, flat, "mae") is None
    assert reference.reference_reliability(flat, flat, flat) is None


def test_the_reliability_of_norms_is_the_share_of_variance_that_is_not_error():
    mean, sd, n = np.array([2.0, 4.0, 6.0, np.nan]), np.array([1.0, 1.0, 1.0, 1.0]), np.array([25.0, 25.0, 25.0, 25.0])
    assert reference.reference_reliability(mean, sd, n) == pytest.approx((4 - 0.04) / 4)


@pytest.mark.parametrize(
    ("name", "of"), [("mae", lambda apart: np.abs(apart).mean()), ("rmse", reference.root_mean_square)]
)
def test_the_interval_of_an_error_is_a_jackknife_of_its_logarithm(name, of):
    x, y = np.random.default_rng(3).normal(0.3, 1, (2, 14))
    logs = np.array([np.log(of(np.delete(x - y, index))) for index in range(14)])
    reach = stats.t.ppf(0.975, 13) * np.sqrt(13 * np.var(logs))
    expected = of(x - y) * np.exp([-reach, reach])
    assert reference.error_interval(x, y, name) == pytest.approx(tuple(expected))
    assert reference.error_interval(x[:9], y[:9], name) is None
    assert reference.error_interval(np.arange(14.0) + (np.arange(14) == 3), np.arange(14.0), name) is None


@pytest.mark.slow
def test_the_confidence_band_matches_statsmodels():
    import statsmodels.api as sm

    random = np.random.default_rng(4)
    x = random.normal(size=20)
    y = 1 + 0.6 * x + random.normal(0, 0.5, 20)
    index = np.array([-2.0, 0.0, 1.5])
    fit, low, high = reference.confidence_band(x, y, index)
    oracle = sm.OLS(y, sm.add_constant(x)).fit().get_prediction(sm.add_constant(index)).summary_frame()
    assert fit == pytest.approx(oracle["mean"].to_numpy())
    assert low == pytest.approx(oracle["mean_ci_lower"].to_numpy())
    assert high == pytest.approx(oracle["mean_ci_upper"].to_numpy())
    assert reference.confidence_band(np.ones(20), y, index) is None


@pytest.mark.parametrize("fit", [reference.least_squares, reference.deming])
def test_items_on_a_line_have_no_interval(fit):
    x = np.linspace(1, 7, 12)
    line = fit(x, 0.5 + 0.8 * x)
    assert (line.intercept, line.slope) == (pytest.approx(0.5), pytest.approx(0.8))
    assert (line.intercept_interval, line.slope_interval) == (None, None)
