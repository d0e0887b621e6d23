"""Paired tests against published results, and invariances of the tests."""

from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, ttest_1samp

from grading_app.statistics.paired import (
    MAX_EXACT_ITEMS,
    MCNEMAR,
    NO_SPREAD,
    SIGN_FLIPS,
    STUDENT,
    TOO_FEW,
    estimate_change,
    holm,
    sign_flip_interval,
    sign_flip_p,
)
from grading_app.statistics.paired_shares import mcnemar_p, tango_interval

# C. Darwin's maize, crossed less self-fertilised, in eighths of an inch: Fisher (1935), sections 17 and 21.
MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
# Hours of sleep gained by one drug over another, ten patients: Student (1908), "The probable error of a mean".
SLEEP = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]

scores = st.lists(st.floats(-7, 7, allow_subnormal=False), min_size=1, max_size=24)


def change(differences, **scale):
    n = len(differences)
    sd = stdev(differences) if n > 1 else None
    return estimate_change(n, fmean(differences), sd, differences if n <= MAX_EXACT_ITEMS else (), **scale)


def test_the_sign_flip_test_of_fishers_maize_is_reproduced():
    assert sign_flip_p(MAIZE) == 2 * 863 / 2**15


def test_students_sleep_data_have_the_published_t_and_interval():
    result = change(SLEEP)
    assert (result.n, result.mean, result.test) == (10, pytest.approx(1.58), SIGN_FLIPS)
    assert result.mean / result.se == pytest.approx(4.0621, abs=1e-4)
    assert (result.low, result.high) == pytest.approx((5 / 6, 37 / 15))


def test_many_items_are_tested_by_students_test():
    differences = [0.5, -0.25, 0.0, 1.0, 0.125] * 4
    result, expected = change(differences), ttest_1samp(differences, 0)
    interval = expected.confidence_interval()
    assert result.test == STUDENT
    assert result.mean / result.se == pytest.approx(expected.statistic)
    assert (result.p, result.low, result.high) == pytest.approx((expected.pvalue, interval.low, interval.high))


@pytest.mark.parametrize(("differences", "p"), [([0.0] * 30, 1.0), ([0.5] * 30, 2.0**-29), ([0.0] * 4, 1.0)])
def test_equal_differences_are_tested_by_their_signs(differences, p):
    assert change(differences).p == p


def test_one_item_has_a_difference_and_no_test():
    result = change([0.5])
    assert (result.mean, result.se, result.p, result.test) == (0.5, None, None, "")
    assert estimate_change(0, 0.0, None) is None


def test_few_items_require_their_single_differences():
    with pytest.raises(ValueError, match="5 differences"):
        estimate_change(5, 0.1, 0.2)
    with pytest.raises(ValueError, match="1 to 16 differences, not 17"):
        sign_flip_p([1.0] * (MAX_EXACT_ITEMS + 1))


@given(scores)
@settings(max_examples=60, deadline=None)
def test_swapping_the_sides_changes_only_the_sign(differences):
    first, second = change(differences), change([-value for value in differences])
    assert second.mean == pytest.approx(-first.mean)
    assert (second.n, second.test, second.se) == (first.n, first.test, pytest.approx(first.se))
    assert second.p == pytest.approx(first.p)
    if first.low is not None:
        assert (second.low, second.high) == (pytest.approx(-first.high, abs=1e-9), pytest.approx(-first.low, abs=1e-9))


@given(st.lists(st.integers(-6, 6), min_size=2, max_size=14), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_items_does_not_matter(differences, random):
    mixed = random.sample(differences, len(differences))
    assert sign_flip_p(mixed) == sign_flip_p(differences)
    assert 2.0 ** (1 - len(differences)) <= sign_flip_p(differences) <= 1


@given(st.lists(st.integers(-6, 6), min_size=6, max_size=12))
@settings(max_examples=40, deadline=None)
def test_the_sign_flip_interval_contains_the_shifts_that_the_test_does_not_reject(differences):
    low, high = sign_flip_interval(differences)
    inside = [low + 1e-7, fmean(differences), high - 1e-7] if high - low > 1e-6 else [low]
    assert all(sign_flip_p([value - shift for value in differences]) > 0.05 for shift in inside)
    for shift in (low - 1e-6, high + 1e-6):
        assert sign_flip_p([value - shift for value in differences]) <= 0.05


def test_five_items_never_reject():
    assert sign_flip_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert change([1.0, 2.0, 3.0, 4.0, 5.0]).reason == TOO_FEW


whole = st.lists(st.integers(-1, 1), min_size=2, max_size=30)


@given(whole)
@settings(max_examples=80, deadline=None)
def test_the_interval_contains_zero_if_and_only_if_the_test_does_not_reject(differences):
    for scale in ({"span": 1.0, "is_single_answer": True}, {"span": 6.0}):
        result = change(differences, **scale)
        assert (result.low <= 1e-12 and result.high >= -1e-12) == (result.p > 0.05), scale
        assert result.low <= result.mean + 1e-12
        assert result.mean - 1e-12 <= result.high


@pytest.mark.parametrize("items", [2, 5, 6, 16, 17, 40, 200])
@pytest.mark.parametrize("scale", [{"span": 1.0, "is_single_answer": True}, {"span": 6.0}, {"span": 100.0}])
def test_unchanged_items_have_an_interval_with_a_width_on_the_scale(items, scale):
    result = change([0.0] * items, **scale)
    assert (result.mean, result.p) == (0, 1)
    assert -scale["span"] <= result.low < -0.01
    assert 0.01 < result.high <= scale["span"]


def test_equal_differences_of_unknown_scale_have_a_reason_and_no_interval():
    for items in (8, 30):
        result = change([0.5] * items)
        assert (result.low, result.high, result.reason) == (None, None, NO_SPREAD)


def test_tangos_interval_matches_the_published_interval():
    # M. W. Fagerland, S. Lydersen & P. Laake (2014), Statistics in Medicine 33, 2850-2875: airway
    # hyper-responsiveness before and after stem cell transplantation, 1 and 7 of 21 children changed.
    assert tango_interval(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)


@pytest.mark.parametrize("n", [1, 10, 40, 200])
def test_tangos_interval_without_changes_has_wilsons_bounds(n):
    # Without changes its ends are z^2 / (n + z^2), because the estimate of q is then 0.
    z2 = 1.959963985**2
    assert tango_interval(0, 0, n) == pytest.approx((-z2 / (n + z2), z2 / (n + z2)))


def test_mcnemars_test_equals_the_chi_squared_test():
    assert mcnemar_p(12, 2) == pytest.approx(chi2.sf(100 / 14, 1))
    assert mcnemar_p(0, 0) == 1


def test_single_binary_answers_have_tangos_interval_and_mcnemars_test():
    result = change([1] * 12 + [-1] * 2 + [0] * 36, span=1.0, is_single_answer=True)
    assert (result.test, result.p) == (MCNEMAR, pytest.approx(mcnemar_p(12, 2)))
    assert (result.low, result.high) == pytest.approx(tango_interval(12, 2, 50))


@pytest.mark.parametrize("items", [8, 11, 20, 40])
@pytest.mark.parametrize(("gains", "losses"), [(0.05, 0.0), (0.1, 0.02), (0.3, 0.05), (0.2, 0.2), (0.6, 0.0)])
def test_the_interval_of_a_change_of_shares_covers_93_percent(gains, losses, items):
    samples = np.random.default_rng(3).choice([1, -1, 0], size=(400, items), p=[gains, losses, 1 - gains - losses])
    intervals = [change(row.tolist(), span=1.0, is_single_answer=True) for row in samples]
    covered = np.mean([interval.low - 1e-9 <= gains - losses <= interval.high + 1e-9 for interval in intervals])
    assert covered > 0.93 - 2 * 0.0128  # .0128 is the standard error of a share of .93 of 400.


def test_holms_correction_matches_a_worked_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_adjusted_p_values_keep_the_order_and_are_never_smaller(ps):
    adjusted = holm(ps)
    assert all(p <= q <= 1 for p, q in zip(ps, adjusted, strict=True))
    assert [q for _, q in sorted(zip(ps, adjusted, strict=True))] == sorted(adjusted)


@pytest.mark.parametrize(("items", "least"), [(10, 0.003), (40, 0.035)])
def test_without_drift_at_most_5_percent_of_tests_reject(items, least):
    """2,000 pairs of waves: items of all difficulties, right or wrong, three repetitions, the same chances in both.

    Few items with mostly equal answers allow few patterns of signs, so fewer tests reject.
    """
    random = np.random.default_rng(20260301)
    chances = random.beta(0.8, 0.8, size=(2000, items))
    differences = (random.binomial(3, chances) - random.binomial(3, chances)) / 3
    alarms = sum(change(row.tolist()).p < 0.05 for row in differences)
    assert least < alarms / 2000 < 0.06
