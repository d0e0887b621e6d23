"""Factors in one model: a published example, statsmodels as the oracle, incomplete tables, and simulated coverage."""

import math

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.anova import AnovaRM
from statsmodels.stats.multivariate import test_mvmean as hotelling

from grading_app.statistics.factorial_model import fit_factors

# S. E. Maxwell & H. D. Delaney (2004), table 12.1: reaction times of ten people, without and with noise, at angles of
# 0, 4 and 8 degrees. Their table 12.5 has F = 33.77 for noise, 40.72 for angle and 45.31 for the interaction.
TIMES = np.array([
    [420, 420, 480, 480, 600, 780], [420, 480, 480, 360, 480, 600], [480, 480, 540, 660, 780, 780],
    [420, 540, 540, 480, 780, 900], [540, 660, 540, 480, 660, 720], [360, 420, 360, 360, 480, 540],
    [480, 480, 600, 540, 720, 840], [480, 600, 660, 540, 720, 900], [540, 600, 540, 480, 720, 780],
    [480, 420, 540, 540, 660, 780],
], dtype=float)  # fmt: skip
NOISE, ANGLE = (0, 0, 0, 1, 1, 1), (0, 1, 2, 0, 1, 2)
LEVELS = {"noise": NOISE, "angle": ANGLE}


def index_terms(fit):
    return {test.factors: test for test in fit.tests}


def test_the_published_example_is_reproduced():
    rows = [
        {"person": person, "noise": NOISE[index], "angle": ANGLE[index], "time": time}
        for person, times in enumerate(TIMES)
        for index, time in enumerate(times)
    ]
    published = AnovaRM(pd.DataFrame(rows), "time", "person", within=["noise", "angle"]).fit().anova_table["F Value"]
    assert published.round(2).tolist() == [33.77, 40.72, 45.31], "these are the data of the book"
    noise = index_terms(fit_factors(TIMES, LEVELS))["noise",]
    assert noise.f == pytest.approx(33.766, abs=1e-3)
    assert noise.df == (1, 9)


def test_several_degrees_of_freedom_are_tested_by_hotellings_t_squared():
    result = index_terms(fit_factors(TIMES, LEVELS))
    without, with_noise = TIMES[:, :3], TIMES[:, 3:]
    angle = np.diff((without + with_noise) / 2, axis=1)
    differences = np.diff(with_noise - without, axis=1)
    for factors, contrasts in ((("angle",), angle), (("noise", "angle"), differences)):
        oracle = hotelling(contrasts)
        assert result[factors].f == pytest.approx(oracle.statistic)
        assert result[factors].p == pytest.approx(oracle.pvalue)
        assert result[factors].df == (2, 8)


def test_marginal_means_are_means_over_items_with_students_interval():
    means = {(mean.factor, mean.level): mean for mean in fit_factors(TIMES, LEVELS).means}
    of_person = TIMES[:, 3:].mean(axis=1)
    noise = means["noise", 1]
    assert noise.mean == pytest.approx(of_person.mean())
    assert noise.se == pytest.approx(of_person.std(ddof=1) / math.sqrt(10))
    assert noise.high - noise.mean == pytest.approx(2.262157 * noise.se, rel=1e-6)
    assert [means["angle", index].mean for index in range(3)] == pytest.approx(TIMES.reshape(20, 3).mean(axis=0))


def test_a_missing_answer_does_not_change_a_constant_difference():
    level = np.arange(12.0)[:, None]
    scores = level + np.array([0.0, 2.0, 5.0, 7.0])
    scores = scores + np.random.default_rng(1).normal(0, 1e-3, scores.shape)
    scores[9:, 0] = np.nan  # The items with the highest level lack the first condition.
    result = fit_factors(scores, {"model": (0, 0, 1, 1), "prompt": (0, 1, 0, 1)})
    assert not result.complete
    means = {(mean.factor, mean.level): mean.mean for mean in result.means}
    assert means["model", 1] - means["model", 0] == pytest.approx(5, abs=0.01)
    assert means["prompt", 1] - means["prompt", 0] == pytest.approx(2, abs=0.01)


def test_an_incomplete_table_gives_the_least_squares_fit_of_statsmodels():
    import statsmodels.formula.api as smf

    random = np.random.default_rng(7)
    scores = random.normal(0, 1, (15, 6)) + np.arange(6)
    scores[random.random(scores.shape) < 0.2] = np.nan
    rows = [
        {"item": item, "noise": NOISE[index], "angle": ANGLE[index], "score": scores[item, index]}
        for item, index in zip(*np.nonzero(~np.isnan(scores)), strict=True)
    ]
    fit = smf.ols("score ~ C(noise, Sum) * C(angle, Sum) + C(item, Sum)", pd.DataFrame(rows)).fit()
    means = {(mean.factor, mean.level): mean.mean for mean in fit_factors(scores, LEVELS).means}
    noise, angle = fit.params["C(noise, Sum)[S.0]"], fit.params["C(angle, Sum)[S.1]"]
    assert means["noise", 0] - means["noise", 1] == pytest.approx(2 * noise)
    assert means["angle", 1] == pytest.approx(fit.params["Intercept"] + angle)


def test_terms_not_determined_by_the_conditions_are_excluded():
    scores = np.random.default_rng(3).normal(size=(20, 3))
    corner = fit_factors(scores, {"model": (0, 0, 1), "prompt": (0, 1, 0)})
    assert list(index_terms(corner)) == [("model",), ("prompt",)]
    assert corner.left_out == [("model", "prompt")]
    aliased = fit_factors(scores, {"model": (0, 1, 2), "sampler": (0, 1, 2)})
    assert list(index_terms(aliased)) == [("model",)]
    assert aliased.left_out == [("sampler",), ("model", "sampler")]


def test_a_test_needs_more_items_than_effects_and_variance():
    many = fit_factors(np.random.default_rng(3).normal(size=(4, 6)), {"model": range(6)})
    assert many.tests[0].p is None
    assert many.tests[0].reason == "needs more than 5 items"
    constant = fit_factors(np.tile([1.0, 2.0], (8, 1)), {"model": (0, 1)})
    assert constant.tests[0].reason == "no variance of the differences"
    assert fit_factors(TIMES[:2], LEVELS) is None
    assert fit_factors(TIMES, {"model": (0,) * 6}) is None


def test_intervals_stay_on_the_scale_and_have_a_width():
    scores = np.ones((12, 2))
    scores[0, 0] = 0
    for mean in fit_factors(scores, {"model": (0, 1)}, bounds=(0, 1)).means:
        assert 0 <= mean.low < mean.high <= 1


def test_the_false_positive_rate_equals_the_level():
    random, alarms = np.random.default_rng(11), 0
    for _ in range(300):
        # Conditions of one model are alike: the covariance is not that of a random level of each item.
        scores = random.normal(size=(12, 1)) + np.repeat(random.normal(size=(12, 2)), 3, axis=1)
        scores = scores + random.normal(0, 0.4, (12, 6))
        scores[random.random(scores.shape) < 0.1] = np.nan
        fit = fit_factors(scores, LEVELS)
        alarms += index_terms(fit)["angle",].p < 0.05
    assert alarms / 300 == pytest.approx(0.05, abs=0.04)
