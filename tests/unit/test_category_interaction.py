"""The interaction of category and condition: F of statsmodels, a permutation p, and no false alarms."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from statsmodels.stats.anova import anova_lm

from grading_app.statistics.category_interaction import category_interaction


def drawn(seed, shift=0.0, items=18):
    """Scores of three conditions on items of three categories; the last condition gains `shift` in the first."""
    random = np.random.default_rng(seed)
    categories = ["ab"[at % 2] if at % 3 else "c" for at in range(items)]
    scores = random.normal(size=(items, 1)) + random.normal(size=(items, 3)) + [0.0, 0.5, 1.0]
    scores[[one == "a" for one in categories], 2] += shift
    return scores, categories


def test_f_matches_the_split_plot_analysis_of_variance():
    scores, categories = drawn(5, shift=1.0)
    rows = [
        {"item": item, "condition": at, "category": categories[item], "score": scores[item, at]}
        for item in range(len(scores))
        for at in range(3)
    ]
    frame = pd.DataFrame(rows)
    additive = smf.ols("score ~ C(item) + C(condition)", frame).fit()
    table = anova_lm(additive, smf.ols("score ~ C(item) + C(condition) * C(category)", frame).fit())
    found = category_interaction(scores, categories)
    assert found.f == pytest.approx(table["F"][1])
    assert found.df == (table["df_diff"][1], table["df_resid"][1])
    assert found.p == pytest.approx(table["Pr(>F)"][1], abs=0.05), "these data are normal"


def test_a_large_interaction_is_found_and_the_same_seed_gives_the_same_p():
    scores, categories = drawn(2, shift=6.0)
    found = category_interaction(scores, categories)
    assert found.p < 0.001
    assert category_interaction(scores, categories) == found


def test_items_with_a_missing_score_are_excluded():
    scores, categories = drawn(1)
    scores[0, 1] = np.nan
    assert category_interaction(scores, categories).items == 17


def test_a_test_needs_two_categories_and_variance():
    scores, categories = drawn(1)
    assert category_interaction(scores, ["a"] * 18) is None
    assert category_interaction(scores[:, :1], categories) is None
    assert category_interaction(np.ones((18, 3)), categories) is None


@pytest.mark.slow
def test_the_false_positive_rate_equals_the_level(monkeypatch):
    monkeypatch.setattr("grading_app.statistics.category_interaction.RESAMPLES", 199)
    monkeypatch.setattr("grading_app.statistics.category_interaction.FEWEST_RESAMPLES", 199)
    alarms = sum(category_interaction(*drawn(seed)).p <= 0.05 for seed in range(200))
    assert alarms / 200 == pytest.approx(0.05, abs=0.045)
