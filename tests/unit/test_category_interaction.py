"""The interaction of category and condition: F of statsmodels, a permutation p, and no false alarms."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from statsmodels.stats.anova import anova_lm

from grading_app.statistics.factorial_model import category_interaction


def draw_scores(seed, shift=0.0, items=18):
    """Return scores of three conditions in three categories. The last condition gains `shift` in the first category."""
    random = np.random.default_rng(seed)
    categories = ["ab"[index % 2] if index % 3 else "c" for index in range(items)]
    scores = random.normal(size=(items, 1)) + random.normal(size=(items, 3)) + [0.0, 0.5, 1.0]
    scores[[category == "a" for category in categories], 2] += shift
    return scores, categories


def test_f_matches_the_split_plot_analysis_of_variance():
    scores, categories = draw_scores(5, shift=1.0)
    rows = [
        {"item": item, "condition": index, "category": categories[item], "score": scores[item, index]}
        for item in range(len(scores))
        for index in range(3)
    ]
    frame = pd.DataFrame(rows)
    additive = smf.ols("score ~ C(item) + C(condition)", frame).fit()
    table = anova_lm(additive, smf.ols("score ~ C(item) + C(condition) * C(category)", frame).fit())
    result = category_interaction(scores, categories)
    assert result.f == pytest.approx(table["F"][1])
    assert result.df == (table["df_diff"][1], table["df_resid"][1])
    assert result.p == pytest.approx(table["Pr(>F)"][1], abs=0.05), "these data are normal"


def test_a_large_interaction_is_found_and_the_same_seed_gives_the_same_p():
    scores, categories = draw_scores(2, shift=6.0)
    result = category_interaction(scores, categories)
    assert result.p < 0.001
    assert category_interaction(scores, categories) == result


def test_items_with_a_missing_score_are_excluded():
    scores, categories = draw_scores(1)
    scores[0, 1] = np.nan
    assert category_interaction(scores, categories).items == 17


def test_a_test_needs_two_categories_and_variance():
    scores, categories = draw_scores(1)
    assert category_interaction(scores, ["a"] * 18) is None
    assert category_interaction(scores[:, :1], categories) is None
    assert category_interaction(np.ones((18, 3)), categories) is None


@pytest.mark.slow
def test_the_false_positive_rate_equals_the_level(monkeypatch):
    monkeypatch.setattr("grading_app.statistics.factorial_model.RESAMPLES", 199)
    monkeypatch.setattr("grading_app.statistics.factorial_model.FEWEST_RESAMPLES", 199)
    alarms = sum(category_interaction(*draw_scores(seed)).p <= 0.05 for seed in range(200))
    assert alarms / 200 == pytest.approx(0.05, abs=0.045)
