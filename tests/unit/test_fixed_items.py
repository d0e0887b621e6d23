"""The difference on these items alone, against statsmodels' cell means and simulated coverage."""

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from grading_app.statistics.condition_pairs import compare_conditions
from grading_app.statistics.fixed_items import (
    NO_VARIANCE,
    TOO_FEW_REPETITIONS,
    estimate_on_these_items,
    estimate_sides_on_these_items,
)
from grading_app.statistics.item_scores import ItemScores


def make_scores(answers):
    """Return the scores of answers: (items, conditions, repetitions), NaN without an answer."""
    n = (~np.isnan(answers)).sum(axis=2)
    means = np.nanmean(answers, axis=2)
    within = np.nansum((answers - means[:, :, None]) ** 2, axis=2)
    items = np.arange(len(answers))
    return ItemScores(items, np.arange(answers.shape[1]), n, np.isnan(answers).sum(axis=2), means, within, False)


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(2, 6))
def test_the_error_is_that_of_a_model_of_cell_means_with_its_own_variance_for_each_cell(seed, items, repetitions):
    draw = np.random.default_rng(seed)
    answers = draw.normal(
        draw.normal(0, 2, (items, 2, 1)), draw.uniform(0.1, 2, (items, 2, 1)), (items, 2, repetitions)
    )
    cells = np.repeat(np.eye(2 * items), repetitions, axis=0)
    fit = sm.OLS(answers.ravel(), cells).fit(cov_type="HC2", use_t=True)
    contrast = fit.t_test(np.tile([-1 / items, 1 / items], items))
    result = estimate_on_these_items(make_scores(answers), 0, 1)
    assert result.mean == pytest.approx(contrast.effect.item())
    assert result.t == pytest.approx(contrast.tvalue.item())
    assert result.df >= repetitions - 1


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 3), st.integers(1, 3), st.integers(2, 5))
def test_sides_of_several_conditions_average_these_within_an_item(seed, items, k_a, k_b, repetitions):
    """The model of cell means again; the contrast gives each of K conditions 1 / K of an item's weight."""
    draw = np.random.default_rng(seed)
    shape = (items, k_a + k_b, 1)
    answers = draw.normal(draw.normal(0, 2, shape), draw.uniform(0.1, 2, shape), (items, k_a + k_b, repetitions))
    fit = sm.OLS(answers.ravel(), np.repeat(np.eye(items * (k_a + k_b)), repetitions, axis=0)).fit(
        cov_type="HC2", use_t=True
    )
    contrast = fit.t_test(np.tile([-1 / items / k_a] * k_a + [1 / items / k_b] * k_b, items))
    sides = make_scores(answers[:, :k_a]), make_scores(answers[:, k_a:])
    result = estimate_sides_on_these_items(*sides)
    assert result.mean == pytest.approx(contrast.effect.item())
    assert result.t == pytest.approx(contrast.tvalue.item())
    assert result.mean == pytest.approx(answers[:, k_a:].mean() - answers[:, :k_a].mean())


def test_differences_between_the_conditions_of_a_side_do_not_widen_its_interval():
    draw = np.random.default_rng(2)
    answers = draw.normal(0, 0.1, (10, 4, 6)) + np.array([0.0, 3.0, 0.2, 3.2])[:, None]
    sides = make_scores(answers[:, :2]), make_scores(answers[:, 2:])
    result = estimate_sides_on_these_items(*sides)
    assert result.high - result.low < 0.1
    assert result.low < 0.2 < result.high


def test_each_condition_of_a_side_needs_two_answers_to_an_item():
    answers = np.random.default_rng(4).normal(size=(5, 4, 1))
    sides = make_scores(answers[:, :2]), make_scores(answers[:, 2:])
    assert estimate_sides_on_these_items(*sides).reason == TOO_FEW_REPETITIONS


@given(st.integers(0, 10**6), st.integers(2, 8))
def test_for_one_item_it_is_welchs_test(seed, repetitions):
    answers = np.random.default_rng(seed).normal(0, [[[1.0], [3.0]]], (1, 2, repetitions))
    result, expected = (
        estimate_on_these_items(make_scores(answers), 0, 1),
        ttest_ind(*answers[0][::-1], equal_var=False),
    )
    ends = expected.confidence_interval()
    assert (result.p, result.low, result.high) == pytest.approx((expected.pvalue, ends.low, ends.high))


def test_repetitions_answer_for_these_items_what_they_cannot_for_others():
    draw = np.random.default_rng(3)
    # Each item changes in its own direction, so other items may change by anything.
    answers = draw.normal(0, 0.1, (12, 2, 20)) + draw.normal(0.3, 1, (12, 1, 1)) * np.array([0, 1])[:, None]
    scores = make_scores(answers)
    alone, like_these = estimate_on_these_items(scores, 0, 1), compare_conditions(scores, 0, 1).change
    assert alone.mean == pytest.approx(like_these.mean)
    assert alone.high - alone.low < 0.2 * (like_these.high - like_these.low)


def test_it_needs_repetitions_that_vary():
    once, equal = np.zeros((5, 2, 1)), np.ones((5, 2, 4))
    assert estimate_on_these_items(make_scores(once), 0, 1).reason == TOO_FEW_REPETITIONS
    assert estimate_on_these_items(make_scores(equal), 0, 1).reason == NO_VARIANCE
    lone = equal.copy()
    lone[0, 0, 1:] = np.nan
    assert estimate_on_these_items(make_scores(lone), 0, 1).reason == TOO_FEW_REPETITIONS


def test_the_interval_ends_at_the_scale():
    answers = np.zeros((2, 2, 2))
    answers[:, 1] = 1.0
    answers[0, 0, 0] = 1.0
    result = estimate_on_these_items(make_scores(answers), 0, 1, span=1.0)
    assert result.low >= -1
    assert result.high == 1


@pytest.mark.parametrize(("share", "repetitions"), [(0.8, 2), (0.97, 5), (0.99, 20)])
def test_it_covers_the_difference_of_the_same_items(share, repetitions):
    draw = np.random.default_rng(5)
    chances = draw.beta(8 * share, 8 * (1 - share), (20, 2, 1))
    truth, hits = float((chances[:, 1] - chances[:, 0]).mean()), []
    for _ in range(400):
        result = estimate_on_these_items(make_scores((draw.random((20, 2, repetitions)) < chances).astype(float)), 0, 1)
        if result.low is not None:
            hits.append(result.low <= truth <= result.high)
    assert np.mean(hits) >= 0.93
