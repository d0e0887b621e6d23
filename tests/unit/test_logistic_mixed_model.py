"""The logistic mixed model, against fits of lme4's glmer, and what it says if there is no fit."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.special import expit
from scipy.stats import norm, t

from grading_app.statistics.item_scores import ItemScores
from grading_app.statistics.logistic_mixed_model import (
    NO_SPREAD_WITHIN_ITEMS,
    SEPARATION,
    find_separated_conditions,
    fit_logistic_model,
    fit_random_intercepts,
)
from tests.unit.lme4_fits import LOGISTIC, code_treatment, read_answers, read_fit, read_questions

# Fits of lme4 to VerbAgg, with 316 persons as random items: O. Bulut, eirm (doi:10.5281/zenodo.4556285), READMEs.
# The effects of r2 ~ -1 + item + (1 | id), of version 0.6, and of r2 ~ -1 + situ + btype + mode + (1 | id), of 0.4.
QUESTIONS = """
1.22107 0.56477 0.08009 1.74879 0.70772 0.01172 0.52947 -0.68637 -1.52694 1.08204 -0.34938 -1.04402
1.22107 0.38962 -0.87122 0.87264 -0.05668 -1.48186 -0.21104 -1.50431 -2.97500 0.70772 -0.38422 -1.99947
"""
OTHER, SELF, SCOLD, SHOUT, DO = 1.744, 0.716, -1.055, -2.042, -0.672
MODE_CHI2 = 142  # Of the second model, without mode.


def make_scores(right, n):
    """Return the scores of counts (items, conditions)."""
    with np.errstate(invalid="ignore"):
        mean = right / n
    n = n.astype(np.int64)
    within = np.nan_to_num(n * mean * (1 - mean))
    return ItemScores(np.arange(len(n)), np.arange(n.shape[1]), n, 0 * n, mean, within, True)


def draw_right(seed, items, effects, n, sd):
    draw = np.random.default_rng(seed)
    log_odds = np.asarray(effects) + draw.normal(0, sd, (items, 1))
    return draw.binomial(n, 1 / (1 + np.exp(-log_odds))).astype(float), np.full(log_odds.shape, float(n))


@pytest.mark.parametrize("name", LOGISTIC)
def test_a_fit_is_that_of_lme4(name):
    expected, (right, n) = read_fit(name), read_answers(name)
    fit = fit_random_intercepts(right, n, code_treatment(right.shape[1]), has_interaction=len(expected["sd"]) == 2)
    assert fit.converged
    assert fit.effects == pytest.approx(expected["effect"], abs=1e-3)
    assert np.sqrt(np.diag(fit.covariance)) == pytest.approx(expected["error"], abs=1e-3)
    assert fit.deviations[: len(expected["sd"])] == pytest.approx(expected["sd"], abs=1e-3)


@pytest.mark.parametrize(
    "name", [name for name in LOGISTIC if name not in ("cbpp", "cbpp_cells", "two_conditions_asked_once")]
)
def test_the_test_of_a_factor_is_the_likelihood_ratio_of_lme4(name):
    right, n = read_answers(name)
    result = fit_logistic_model(make_scores(right, n), {"condition": range(right.shape[1])})
    (test,), expected = result.tests, read_fit(name)
    assert (test.chi2, test.df) == (pytest.approx(expected["chi2"][0], rel=1e-4), right.shape[1] - 1)
    for ratio, effect, error in zip(result.ratios, expected["effect"][1:], expected["error"][1:], strict=True):
        assert np.log(ratio.ratio) == pytest.approx(effect, abs=1e-3)
        ends = t.ppf([0.025, 0.975], (n > 0).sum() - (n > 0).any(axis=1).sum() - n.shape[1] + 1, effect, error)
        assert np.log(ratio.interval) == pytest.approx(ends, abs=3e-3)


def test_the_questions_of_verbagg_are_as_easy_as_published():
    right, n = read_answers("verbagg")
    fit = fit_random_intercepts(right, n, np.eye(24), has_interaction=False)
    assert fit.converged
    assert fit.effects == pytest.approx([float(effect) for effect in QUESTIONS.split()], abs=1e-3)


def test_situation_behaviour_and_mode_explain_verbagg_as_published():
    (right, n), questions = read_answers("verbagg"), read_questions()
    columns = {"situ": ("other", "self"), "btype": ("scold", "shout"), "mode": ("do",)}
    x = np.column_stack([questions[name] == level for name, levels in columns.items() for level in levels]).astype(
        float
    )
    fit = fit_random_intercepts(right, n, x, has_interaction=False)
    without_mode = fit_random_intercepts(right, n, x[:, :4], has_interaction=False)
    assert fit.effects == pytest.approx([OTHER, SELF, SCOLD, SHOUT, DO], abs=1e-3)
    assert without_mode.deviance - fit.deviance == pytest.approx(MODE_CHI2, abs=0.5)


def measure_deviance(parameters, right, x):
    """Integrate each item's likelihood over 2,001 levels of items, for answers that were asked once."""
    levels = np.linspace(-9, 9, 2001)
    chances = expit((x @ parameters[1:])[:, None] + parameters[0] * levels)
    likelihoods = np.where(right[:, :, None] == 1, chances, 1 - chances).prod(axis=1) * norm.pdf(levels)
    return -2 * np.log(trapezoid(likelihoods, levels, axis=1)).sum()


def test_errors_of_effects_follow_from_the_curvature_of_the_integrated_likelihood():
    right, n = draw_right(7, 60, (0.0, 1.5, -0.5, 0.3), 1, 1.2)
    x = code_treatment(4)
    fit = fit_random_intercepts(right, n, x, has_interaction=False)
    at = np.array([fit.item_sd, *fit.effects])
    assert fit.deviance == pytest.approx(measure_deviance(at, right, x), abs=1e-6)
    steps = 1e-3 * np.eye(len(at))
    curvature = [
        [
            sum(a * b * measure_deviance(at + a * one + b * other, right, x) for a in (1, -1) for b in (1, -1)) / 4e-6
            for other in steps
        ]
        for one in steps
    ]
    assert fit.covariance == pytest.approx(2 * np.linalg.inv(curvature)[1:, 1:], rel=1e-3)


def test_a_condition_without_a_wrong_answer_has_no_finite_odds():
    right, n = draw_right(1, 30, (0.0, 0.5, 0.5), 2, 1.0)
    right[:, 1] = n[:, 1]
    result = fit_logistic_model(make_scores(right, n), {"model": (0, 1, 2)})
    assert (result.reason, result.alike) == (SEPARATION, ((1, 1),))
    assert not result.tests
    assert not result.ratios
    assert fit_logistic_model(make_scores(n - right, n), {"model": (0, 1, 2)}).alike == ((1, 0),)


def test_effects_are_finite_if_other_conditions_share_the_level():
    """In a model without interaction, one condition without a wrong answer leaves all effects finite."""
    additive = np.array([[1, 1, 1], [1, 1, -1], [1, -1, 1], [1, -1, -1]], dtype=float)
    right, n = draw_right(2, 30, (2.0, 0.5, 0.3, -0.5), 1, 0.8)
    right[:, 0] = n[:, 0]
    assert find_separated_conditions(right, n, additive) == ()
    right[:, 1] = n[:, 1]
    assert find_separated_conditions(right, n, additive) == ((0, 1), (1, 1))


def test_items_whose_answers_are_all_alike_have_no_fit():
    right, n = draw_right(3, 40, (0.0, 0.0), 1, 0.0)
    right[:, 1] = right[:, 0]
    right[0, 1] = 1 - right[0, 0]
    right[1, 1] = 1 - right[1, 0]
    result = fit_logistic_model(make_scores(right, n), {"model": (0, 1)})
    assert result.reason == NO_SPREAD_WITHIN_ITEMS


def test_a_level_is_compared_with_the_reference_and_the_order_of_conditions_does_not_matter():
    right, n = draw_right(4, 60, (0.0, 1.0, 0.5), 3, 1.0)
    first = fit_logistic_model(make_scores(right, n), {"model": (0, 1, 2)})
    other = fit_logistic_model(make_scores(right, n), {"model": (0, 1, 2)}, {"model": 1})
    up, down = first.ratios[0], other.ratios[0]
    assert (up.level, up.reference, down.level, down.reference) == (1, 0, 0, 1)
    assert (down.ratio, *down.interval) == pytest.approx((1 / up.ratio, 1 / up.interval[1], 1 / up.interval[0]))
    turned = fit_logistic_model(make_scores(right[:, ::-1], n), {"model": (2, 1, 0)})
    assert turned.tests[0].chi2 == pytest.approx(first.tests[0].chi2, rel=1e-6)


def test_answers_asked_once_have_no_random_item_by_condition():
    right, n = draw_right(5, 80, (0.0, 1.0, 0.5), 1, 1.0)
    assert not fit_logistic_model(make_scores(right, n), {"model": (0, 1, 2)}).has_interaction
    assert fit_logistic_model(make_scores(3 * right, 3 * n), {"model": (0, 1, 2)}) is not None
    assert fit_logistic_model(make_scores(right[:19], n[:19]), {"model": (0, 1, 2)}) is None
    assert fit_logistic_model(make_scores(right, n), {"model": (0, 0, 0)}) is None


def test_a_design_of_two_factors_tests_main_effects_and_interaction():
    right, n = draw_right(6, 100, (0.0, 1.0, 0.0, 1.0), 2, 1.0)
    result = fit_logistic_model(make_scores(right, n), {"model": (0, 1, 0, 1), "prompt": (0, 0, 1, 1)})
    tests = {test.factors: test for test in result.tests}
    assert list(tests) == [("model",), ("prompt",), ("model", "prompt")]
    assert tests["model",].p < 1e-4 < 0.01 < min(tests["prompt",].p, tests["model", "prompt"].p)
    assert [(ratio.factor, ratio.level) for ratio in result.ratios] == [("model", 1), ("prompt", 1)]
