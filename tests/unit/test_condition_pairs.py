"""Two conditions compared item by item: published tables, scipy, and simulated coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from grading_app.statistics import condition_pairs as pairs
from grading_app.statistics.item_scores import ItemScores
from grading_app.statistics.paired import exact_mcnemar_p


def build_scores(a, b, *, n=1, is_binary=True):
    means = np.column_stack([a, b]).astype(float)
    shape = means.shape
    nothing = np.zeros(shape)
    return ItemScores(
        np.arange(shape[0]), np.array([1, 2]), np.full(shape, n), nothing.astype(int), means, nothing, is_binary
    )


def compare_counts(both_right, gained, lost, both_wrong):
    a = [1] * both_right + [0] * gained + [1] * lost + [0] * both_wrong
    b = [1] * both_right + [1] * gained + [0] * lost + [0] * both_wrong
    return pairs.compare_conditions(build_scores(a, b), 1, 2, (0.0, 1.0))


def test_approval_ratings_of_a_published_table():
    # A. Agresti (2002), Categorical data analysis, 2nd edition, table 10.1: 794 / 150 / 86 / 570 of 1,600 voters.
    # The difference is -.04, z^2 = 17.36, and the interval of the text is -.06 to -.02.
    result = compare_counts(794, 86, 150, 570)
    assert result.change.mean == pytest.approx(-0.04)
    assert (result.change.low, result.change.high) == (pytest.approx(-0.06, abs=0.003), pytest.approx(-0.02, abs=0.003))
    assert result.change.p == pytest.approx(stats.chi2.sf(17.3559, 1), rel=1e-3)
    assert result.two_by_two.p == pytest.approx(stats.binomtest(86, 236).pvalue)
    assert result.two_by_two.odds_ratio == pytest.approx(86 / 150)
    assert (result.wins, result.losses, result.ties) == (86, 150, 1364)


def test_the_odds_ratio_has_the_interval_of_the_exact_test():
    low, high = pairs.odds_ratio_interval(10, 3)
    share = stats.binomtest(10, 13).proportion_ci(method="exact")
    assert low == pytest.approx(share.low / (1 - share.low))
    assert high == pytest.approx(share.high / (1 - share.high))
    assert pairs.odds_ratio_interval(4, 0)[1] is None
    assert pairs.odds_ratio_interval(0, 4)[0] == 0


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_exact_test_equals_the_binomial_test(gained, lost):
    expected = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert exact_mcnemar_p(gained, lost) == pytest.approx(expected)


def test_equal_differences_have_no_effect_size():
    result = pairs.compare_conditions(build_scores([0.2] * 20, [0.4] * 20, n=5, is_binary=False), 1, 2, (0.0, 1.0))
    assert (result.effect, result.change.test) == (None, "sign flips")
    assert result.change.high - result.change.low > 0.1


def test_adjusted_p_values_match_scipy():
    ps = [0.01, 0.04, 0.03, 0.005, 0.8]
    assert pairs.benjamini_hochberg(ps) == pytest.approx(list(stats.false_discovery_control(ps)))


def test_the_permutation_test_matches_the_t_test_on_normal_differences():
    apart = np.random.default_rng(2).normal(0.3, 1, 60)
    assert pairs.permutation_p_values([apart]) == [pytest.approx(stats.ttest_1samp(apart, 0).pvalue, abs=0.01)]
    assert pairs.permutation_p_values([apart]) == pairs.permutation_p_values([apart])


def test_wilcoxon_is_undefined_for_equal_scores():
    assert pairs.wilcoxon_p(np.zeros(8)) is None


@given(st.lists(st.integers(-3, 3).filter(bool), min_size=1, max_size=9))
def test_wilcoxon_of_a_few_differences_with_ties_is_exact_as_in_scipy(steps):
    differences = np.array(steps) / 10
    assert pairs.wilcoxon_p(np.append(differences, 0.0)) == pytest.approx(stats.wilcoxon(differences).pvalue)


@pytest.mark.parametrize("n", [8, 13, 14, 40, 60])
def test_wilcoxon_without_ties_matches_scipy(n):
    apart = np.random.default_rng(n).normal(0.3, 1, n)
    assert pairs.wilcoxon_p(apart) == pytest.approx(stats.wilcoxon(apart).pvalue)


def test_wilcoxon_sees_ties_of_decimal_scores():
    """0.8 - 0.6 and 0.4 - 0.2 differ in their last bit."""
    scores_a, scores_b = np.array([0.8, 0.4, 0.9, 0.2]), np.array([0.6, 0.2, 0.7, 0.4])
    assert pairs.wilcoxon_p(scores_a - scores_b) == pytest.approx(stats.wilcoxon([2, 2, 2, -2]).pvalue)


def test_only_common_items_are_compared_and_other_items_are_counted():
    scores = build_scores([1, 0, 1, 1], [1, 1, 0, 1])
    scores.n[0, 0] = scores.n[1, 1] = scores.n[3, 1] = 0
    result = pairs.compare_conditions(scores, 1, 2)
    assert (result.items, result.only_a, result.only_b) == (1, 2, 1)
    scores.n[2, 1] = 0
    assert pairs.compare_conditions(scores, 1, 2) is None


def test_the_interval_covers_the_true_difference_of_repeated_answers():
    """1,000 samples of 40 items x 5 answers; the error of the estimated coverage is below .007 at .95."""
    random, covered = np.random.default_rng(11), 0
    for _ in range(1000):
        difficulty = random.beta(2, 1, 40)
        a = random.binomial(5, difficulty) / 5
        b = random.binomial(5, np.clip(difficulty + 0.05 * (1 - difficulty), 0, 1)) / 5
        result = pairs.compare_conditions(build_scores(a, b, n=5), 1, 2, (0.0, 1.0)).change
        covered += result.low <= 0.05 / 3 <= result.high
    assert covered >= 930
