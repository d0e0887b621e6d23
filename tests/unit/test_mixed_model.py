"""The mixed model, against fits of lme4, and an analysis of variance of statsmodels."""

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.anova import AnovaRM

from grading_app.statistics.item_scores import ItemScores
from grading_app.statistics.variance_components import fit_mixed_model, fit_random_items
from tests.unit.lme4_fits import code_treatment, read_fit

# G. Belenky et al. (2003), Journal of Sleep Research 12, 1-12: reaction times (ms) of 18 people on days 0 to 9.
SLEEP = """
249.56 258.7047 250.8006 321.4398 356.8519 414.6901 382.2038 290.1486 430.5853 466.3535
222.7339 205.2658 202.9778 204.707 207.7161 215.9618 213.6303 217.7272 224.2957 237.3142
199.0539 194.3322 234.32 232.8416 229.3074 220.4579 235.4208 255.7511 261.0125 247.5153
321.5426 300.4002 283.8565 285.133 285.7973 297.5855 280.2396 318.2613 305.3495 354.0487
287.6079 285 301.8206 320.1153 316.2773 293.3187 290.075 334.8177 293.7469 371.5811
234.8606 242.8118 272.9613 309.7688 317.4629 309.9976 454.1619 346.8311 330.3003 253.8644
283.8424 289.555 276.7693 299.8097 297.171 338.1665 332.0265 348.8399 333.36 362.0428
265.4731 276.2012 243.3647 254.6723 279.0244 284.1912 305.5248 331.5229 335.7469 377.299
241.6083 273.9472 254.4907 270.8021 251.4519 254.6362 245.4523 235.311 235.7541 237.2466
312.3666 313.8058 291.6112 346.1222 365.7324 391.8385 404.2601 416.6923 455.8643 458.9167
236.1032 230.3167 238.9256 254.922 250.7103 269.7744 281.5648 308.102 336.2806 351.6451
256.2968 243.4543 256.2046 255.5271 268.9165 329.7247 379.4445 362.9184 394.4872 389.0527
250.5265 300.0576 269.8939 280.5891 271.8274 304.6336 287.7466 266.5955 321.5418 347.5655
221.6771 298.1939 326.8785 346.8555 348.7402 352.8287 354.4266 360.4326 375.6406 388.5417
271.9235 268.4369 257.2424 277.6566 314.8222 317.2135 298.1353 348.1229 340.28 366.5131
225.264 234.5235 238.9008 240.473 267.5373 344.1937 281.1481 347.5855 365.163 372.2288
269.8804 272.4428 277.8989 281.7895 279.1705 284.512 259.2658 304.6306 350.7807 369.4692
269.4117 273.474 297.5968 310.6316 287.1726 329.6076 334.4818 343.2199 369.1417 364.1236
"""
# G. A. Milliken & D. E. Johnson (1992), Analysis of messy data I: three scores of six workers on machines A, B and C.
MACHINES = """
52 52.8 53.1  62.1 62.6 64  67.5 67.2 66.9
51.8 52.8 53.1  59.7 60 59  61.5 61.7 62.3
60 60.2 58.4  68.6 65.8 69.7  70.8 70.6 71
51.1 52.3 50.3  63.2 62.8 62.2  64.1 66.2 64
50.9 51.8 51.4  64.8 65 65.4  72.1 72 71.1
46.4 44.8 49.2  43.7 44.2 43  62 61.4 60.5
"""


def read_numbers(text):
    return np.array([line.split() for line in text.strip().splitlines()], dtype=np.float64)


def make_scores(answers):
    """Return the scores of answers: (items, conditions, repetitions)."""
    items, conditions, repetitions = answers.shape
    means = answers.mean(axis=2)
    n = np.full((items, conditions), repetitions)
    within = ((answers - means[:, :, None]) ** 2).sum(axis=2)
    return ItemScores(np.arange(items), np.arange(conditions), n, 0 * n, means, within, False)


def test_a_random_level_of_each_person_fits_sleepstudy_as_lme4_does():
    fit = fit_random_items(read_numbers(SLEEP), np.column_stack([np.ones(10), np.arange(10)]))
    expected = read_fit("sleepstudy")
    assert fit.effects == pytest.approx(expected["effect"], abs=1e-3)
    assert np.sqrt(np.diag(fit.covariance)) == pytest.approx(expected["error"], abs=1e-3)
    assert (fit.item_sd, fit.residual_sd) == pytest.approx(tuple(expected["sd"]), abs=1e-3)
    assert fit.converged
    assert not fit.at_boundary


def test_random_workers_and_worker_by_machine_fit_machines_as_lme4_does():
    scores = make_scores(read_numbers(MACHINES).reshape(6, 3, 3))
    fit, expected = fit_mixed_model(scores, {"machine": (0, 1, 2)}), read_fit("machines")
    assert (fit.item_sd, fit.interaction_sd, fit.repetition_sd) == pytest.approx(tuple(expected["sd"]), abs=1e-3)
    effects = fit_random_items(scores.mean, code_treatment(3))
    assert effects.effects == pytest.approx(expected["effect"], abs=1e-3)
    assert np.sqrt(np.diag(effects.covariance)) == pytest.approx(expected["error"], abs=1e-3)
    assert fit.tests[0].f == pytest.approx(20.5761, abs=1e-3)  # anova() of the same fit.
    assert fit.tests[0].df == (2, 10)


def test_f_of_a_complete_table_is_that_of_the_analysis_of_variance_for_repeated_measures():
    draw = np.random.default_rng(2)
    cells = draw.normal(0, 2, (12, 1)) + draw.normal(0, 1, (12, 4)) + [0.0, 0.4, 0.8, 1.2]
    levels = {"model": (0, 0, 1, 1), "prompt": (0, 1, 0, 1)}
    fit = fit_mixed_model(make_scores(cells[:, :, None]), {"condition": (0, 1, 2, 3)})
    rows = pd.DataFrame(
        [(item, condition, cells[item, condition]) for item in range(12) for condition in range(4)],
        columns=["item", "condition", "score"],
    )
    expected = AnovaRM(rows, "score", "item", within=["condition"]).fit().anova_table
    assert (fit.tests[0].f, fit.tests[0].p) == pytest.approx(
        (expected["F Value"].iloc[0], expected["Pr > F"].iloc[0]), rel=1e-3
    )
    assert [test.factors for test in fit_mixed_model(make_scores(cells[:, :, None]), levels).tests] == [
        ("model",),
        ("prompt",),
        ("model", "prompt"),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_variances_of_a_complete_table_are_those_of_the_analysis_of_variance(seed):
    """Right and wrong answers to few conditions: an optimizer of general software gave a variance of zero here."""
    draw = np.random.default_rng(seed)
    cells = (draw.random((64, 4)) < 1 / (1 + np.exp(-draw.normal(1.5, 2, (64, 1))))).astype(float)
    fit = fit_random_items(cells, np.hstack([np.ones((4, 1)), np.eye(4)[:, 1:]]))
    levels = cells.mean(axis=1, keepdims=True)
    items = 4 * levels.var(ddof=1)
    residual = ((cells - levels - cells.mean(axis=0) + cells.mean()) ** 2).sum() / (63 * 3)
    assert (fit.item_sd, fit.residual_sd) == pytest.approx((np.sqrt((items - residual) / 4), np.sqrt(residual)))
    assert fit.converged
    assert not fit.at_boundary


def test_items_without_a_level_of_their_own_are_reported_at_the_boundary():
    draw = np.random.default_rng(4)
    cells = draw.normal(0, 1, (30, 3))
    cells -= cells.mean(axis=1, keepdims=True)
    fit = fit_random_items(cells, np.ones((3, 1)))
    assert (fit.at_boundary, fit.item_sd) == (True, pytest.approx(0, abs=1e-3))
    assert fit.residual_sd == pytest.approx(cells.std(ddof=1), rel=1e-3)


def test_incomplete_items_count_and_constant_cells_have_no_fit():
    draw = np.random.default_rng(5)
    cells = draw.normal(0, 1, (20, 1)) + draw.normal(0, 0.5, (20, 2))
    cells[:5, 1] = np.nan
    assert fit_random_items(cells, np.array([[1.0, -1.0], [1.0, 1.0]])).converged
    assert fit_random_items(np.full((6, 2), 3.0), np.ones((2, 1))) is None
    assert fit_mixed_model(make_scores(np.zeros((2, 2, 1))), {"model": (0, 1)}) is None


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_the_size_of_the_scores_changes_only_the_scale(size):
    numbers = read_numbers(MACHINES).reshape(6, 3, 3)
    plain, scaled = (fit_mixed_model(make_scores(numbers * one), {"machine": (0, 1, 2)}) for one in (1.0, size))
    assert scaled.tests[0].f == pytest.approx(plain.tests[0].f, rel=1e-6)
    assert scaled.item_sd == pytest.approx(plain.item_sd * size, rel=1e-6)
