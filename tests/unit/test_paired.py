"""Paired tests against published results, and invariances of the tests."""

from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chi2, permutation_test, ttest_rel

from grading_app.statistics.paired import (
    BOUNDED_INTERVAL,
    EXACT_MCNEMAR,
    FEW_CHANGED,
    MCNEMAR,
    MIN_CHANGED,
    NO_SPREAD,
    SIGN_FLIPS,
    STUDENT,
    TOO_FEW,
    estimate_change,
    holm,
    holm_with,
    mcnemar_p,
    sign_flip_interval,
    sign_flip_p,
    tango_interval,
)

# C. Darwin's maize, crossed less self-fertilised, in eighths of an inch: Fisher (1935), sections 17 and 21.
MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
# Hours of sleep gained by one drug over another, ten patients: Student (1908), "The probable error of a mean".
SLEEP = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]

scores = st.lists(st.floats(-7, 7, allow_subnormal=False), min_size=1, max_size=24)


def change(differences, **scale):
    n = len(differences)
    sd = stdev(differences) if n > 1 else None
    changed = [value for value in differences if value]
    return estimate_change(n, fmean(differences), sd, changed if len(changed) < MIN_CHANGED else None, **scale)


def test_the_sign_flip_test_of_fishers_maize_is_reproduced():
    assert sign_flip_p(MAIZE) == 2 * 863 / 2**15


def test_students_sleep_data_have_the_published_t_and_interval():
    result = change(SLEEP)
    assert (result.n, result.mean, result.test) == (10, pytest.approx(1.58), SIGN_FLIPS)
    assert result.mean / result.se == pytest.approx(4.0621, abs=1e-4)
    assert (result.low, result.high) == pytest.approx((5 / 6, 37 / 15))


def draw_table(random):
    """Return two columns of scores of the same items, on a scale of this length, most items with different scores."""
    items, span = int(random.integers(17, 120)), float(random.choice([1.0, 6.0, 100.0]))
    level = random.uniform(0.2, 0.8, items)
    columns = [np.clip(level + random.normal(shift, 0.1, items), 0, 1) * span for shift in (0, random.normal(0, 0.05))]
    return columns, span


def test_the_paired_t_test_of_1000_tables_equals_scipy():
    random = np.random.default_rng(20260301)
    for _ in range(1000):
        (a, b), span = draw_table(random)
        expected, differences = ttest_rel(b, a), (b - a).tolist()
        interval = expected.confidence_interval()
        result = change(differences, span=span)
        assert (result.test, result.df) == (STUDENT, expected.df)
        assert (result.t, result.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)
        assert (result.low, result.high) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-12)


def test_repeated_shares_with_a_small_clear_change_are_significant():
    """40 items x 20 repetitions, changes of mean .05 and SD .08: an interval in units of whole flips would hide it."""
    differences = np.random.default_rng(7).normal(0, 1, 40)
    differences = 0.05 + 0.0823 * (differences - differences.mean()) / differences.std(ddof=1)
    result = change(differences.tolist(), span=1.0)
    assert (result.test, result.df) == (STUDENT, 39)
    assert (result.t, result.p) == (pytest.approx(3.842, abs=1e-3), pytest.approx(0.00044, abs=1e-5))
    assert (result.low, result.high) == (pytest.approx(0.0237, abs=1e-4), pytest.approx(0.0763, abs=1e-4))
    assert result.test_text == "paired t, t(39) = 3.84"


@pytest.mark.parametrize("items", [6, 16, 24])
def test_the_sign_flip_test_equals_scipys_exact_permutation_test(items):
    differences = np.random.default_rng(items).integers(-4, 6, items).astype(float)[: min(items, 13)]
    expected = permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(differences.tolist()) == pytest.approx(expected.pvalue)


@pytest.mark.parametrize("changed", [17, 24])
def test_the_sign_flip_test_of_equal_steps_is_the_binomial_test(changed):
    for up in range(changed + 1):
        expected = binomtest(up, changed).pvalue
        assert sign_flip_p([1.0] * up + [-1.0] * (changed - up)) == pytest.approx(expected)


@pytest.mark.parametrize(("differences", "p"), [([0.0] * 30, 1.0), ([0.5] * 30, 2.0**-29), ([0.0] * 4, 1.0)])
def test_equal_differences_are_tested_by_their_signs(differences, p):
    assert change(differences).p == p


def test_one_item_has_a_difference_and_no_test():
    result = change([0.5])
    assert (result.mean, result.se, result.p, result.test) == (0.5, None, None, "")
    assert estimate_change(0, 0.0, None) is None


def test_few_items_require_their_single_differences():
    with pytest.raises(ValueError, match="5 items needs their differences"):
        estimate_change(5, 0.1, 0.2)
    with pytest.raises(ValueError, match="fewer than 25 differences, not 25"):
        sign_flip_p([1.0] * MIN_CHANGED)
    with pytest.raises(ValueError, match="6 to 16 differences at 95 %, not 17"):
        sign_flip_interval([1.0] * 17)


@given(scores)
@settings(max_examples=60, deadline=None)
def test_swapping_the_sides_changes_only_the_sign(differences):
    first, second = change(differences), change([-value for value in differences])
    assert second.mean == pytest.approx(-first.mean)
    assert (second.n, second.test, second.se) == (first.n, first.test, pytest.approx(first.se))
    assert second.p == pytest.approx(first.p)
    if first.low is not None:
        assert (second.low, second.high) == (pytest.approx(-first.high, abs=1e-9), pytest.approx(-first.low, abs=1e-9))


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=14), st.randoms(use_true_random=False))
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
    with pytest.raises(ValueError, match="6 to 16 differences"):
        sign_flip_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert change([1.0, 2.0, 3.0, 4.0, 5.0]).reason == TOO_FEW


whole = st.lists(st.integers(-1, 1), min_size=2, max_size=30)


@given(whole)
@settings(max_examples=80, deadline=None)
def test_zero_is_in_the_interval_if_the_test_does_not_reject_and_else_at_most_an_end(differences):
    for scale in ({"span": 1.0, "is_single_answer": True}, {"span": 6.0}):
        result = change(differences, **scale)
        if result.p > 0.05:
            assert result.low <= 0 <= result.high, scale
        else:
            assert not result.low < 0 < result.high, scale
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


def test_single_answers_have_tangos_interval_and_mcnemars_test():
    many = change([1] * 20 + [-1] * 8 + [0] * 36, span=1.0, is_single_answer=True)
    assert (many.test, many.p) == (MCNEMAR, pytest.approx(mcnemar_p(20, 8)))
    assert (many.low, many.high) == pytest.approx(tango_interval(20, 8, 64))


def test_fewer_than_25_discordant_items_have_the_exact_mcnemar_test():
    for items in (8, 17, 200):
        result = change([1] * 5 + [0] * (items - 5), span=1.0, is_single_answer=True)
        assert (result.test, result.p) == (EXACT_MCNEMAR, pytest.approx(binomtest(5, 5).pvalue))
        assert result.low <= 0 < result.mean < result.high
    assert change([1] * 20 + [-1] * 4 + [0] * 9, span=1.0, is_single_answer=True).test == EXACT_MCNEMAR


def test_few_changes_are_tested_exactly_within_the_scale():
    """Of 40 items rated 7 on a scale from 1 to 7, three fell by 3. Student's interval would miss rarer falls."""
    result = change([0.0] * 37 + [-3.0] * 3, span=6.0)
    assert (result.test, result.method, result.p, result.t) == (SIGN_FLIPS, BOUNDED_INTERVAL, 0.25, None)
    assert result.low < -0.5
    assert result.high > 0
    assert change([0.0] * 37 + [-3.0] * 3).reason == FEW_CHANGED


@pytest.mark.slow
@pytest.mark.parametrize(("share", "fall"), [(0.05, -3.0), (0.02, -6.0), (0.1, -2.0)])
@pytest.mark.parametrize("items", [20, 40, 200])
def test_the_interval_of_rare_falls_from_the_ceiling_covers_95_percent(share, fall, items):
    random = np.random.default_rng(11)
    covered = 0
    for _ in range(200):
        result = change(np.where(random.random(items) < share, fall, 0.0).tolist(), span=6.0)
        covered += result.low - 1e-9 <= share * fall <= result.high + 1e-9
    assert covered / 200 > 0.95 - 2 * 0.0154  # .0154 is the standard error of a share of .95 of 200.


@pytest.mark.parametrize("items", [8, 11, 20, 40])
@pytest.mark.parametrize(("gains", "losses"), [(0.05, 0.0), (0.1, 0.02), (0.3, 0.05), (0.2, 0.2), (0.6, 0.0)])
def test_the_interval_of_a_change_of_shares_covers_93_percent(gains, losses, items):
    samples = np.random.default_rng(3).choice([1, -1, 0], size=(400, items), p=[gains, losses, 1 - gains - losses])
    intervals = [change(row.tolist(), span=1.0, is_single_answer=True) for row in samples]
    covered = np.mean([interval.low - 1e-9 <= gains - losses <= interval.high + 1e-9 for interval in intervals])
    assert covered > 0.93 - 2 * 0.0128  # .0128 is the standard error of a share of .93 of 400.


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_the_corrected_value_of_one_p_equals_that_in_its_family(ps):
    p, *others = ps
    assert holm_with(p, sorted(others)) == holm(ps)[0]


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
