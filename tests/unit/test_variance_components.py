"""Variance components equal those of a mixed model, and a larger design gains what the formula says."""

import numpy as np
import pytest
from scipy import stats

from grading_app.statistics.item_scores import ItemScores
from grading_app.statistics.variance_components import (
    Components,
    find_needed_items,
    paired_power,
    share_intervals,
    variance_components,
)


def simulate_scores(items=60, conditions=4, repetitions=5, seed=1):
    random = np.random.default_rng(seed)
    values = (
        4
        + random.normal(0, 1.5, (items, 1, 1))
        + random.normal(0, 0.5, (1, conditions, 1))
        + random.normal(0, 0.8, (items, conditions, 1))
        + random.normal(0, 1.0, (items, conditions, repetitions))
    )
    means = values.mean(axis=2)
    shape = (items, conditions)
    scores = ItemScores(
        np.arange(items), np.arange(conditions), np.full(shape, repetitions), np.zeros(shape, int), means,
        ((values - means[..., None]) ** 2).sum(axis=2), False,
    )  # fmt: skip
    return scores, values


def test_components_match_a_mixed_model_by_restricted_likelihood():
    import pandas as pd
    import statsmodels.formula.api as smf

    scores, values = simulate_scores(items=25, conditions=3, repetitions=3)
    index = np.indices(values.shape).reshape(3, -1)
    frame = pd.DataFrame({"item": index[0], "condition": index[1], "y": values.ravel(), "all": 1})
    frame["cell"] = frame["item"] * 100 + frame["condition"]
    fitted = smf.mixedlm(
        "y ~ C(condition)", frame, groups="all", re_formula="0",
        vc_formula={"item": "0 + C(item)", "cell": "0 + C(cell)"},
    ).fit(reml=True)  # fmt: skip
    result = variance_components(scores)
    by_name = dict(zip(fitted.model.exog_vc.names, fitted.vcomp, strict=True))
    assert result.item == pytest.approx(by_name["item"], rel=0.01)
    assert result.interaction == pytest.approx(by_name["cell"], rel=0.01)
    assert result.repetition == pytest.approx(fitted.scale, rel=0.01)


def test_components_of_a_large_sample_are_the_true_ones():
    result = variance_components(simulate_scores(items=4000, conditions=6, repetitions=4)[0])
    assert result.item == pytest.approx(2.25, rel=0.08)
    assert result.interaction == pytest.approx(0.64, rel=0.08)
    assert result.repetition == pytest.approx(1.0, rel=0.03)


def test_single_scores_do_not_separate_repetitions_from_interaction():
    result = variance_components(simulate_scores(repetitions=1)[0])
    assert result.repetition is None
    assert result.interaction == pytest.approx(1.64, rel=0.3)


def test_items_with_a_missing_score_are_excluded():
    scores, _ = simulate_scores(items=10)
    scores.n[0, 1] = 0
    assert variance_components(scores).items == 9
    assert variance_components(scores.select_conditions([0])) is None


COMPONENTS = Components(50, 2, 5, item=2.0, condition=0.1, interaction=0.5, repetition=1.0)


def test_the_standard_error_of_a_difference_matches_simulated_designs():
    random = np.random.default_rng(3)
    apart = random.normal(0, np.sqrt(2 * (0.5 + 1.0 / 5)), (20_000, 50)).mean(axis=1)
    assert COMPONENTS.standard_error(50, 5) == pytest.approx(apart.std(), rel=0.02)


def test_the_power_matches_the_noncentral_t_test():
    # J. Cohen (1988), example of chapter 2: d = 0.5 and 33 pairs have a power of about 80 %.
    power = paired_power(0.5, 1 / np.sqrt(33), 33)
    critical = stats.t.ppf(0.975, 32)
    expected = 1 - stats.nct.cdf(critical, 32, 0.5 * np.sqrt(33)) + stats.nct.cdf(-critical, 32, 0.5 * np.sqrt(33))
    assert power == pytest.approx(expected, abs=1e-9)
    assert power == pytest.approx(0.795, abs=0.01)


def test_the_required_items_are_the_fewest_with_the_requested_power():
    items = find_needed_items(COMPONENTS, 0.4, repetitions=5)
    assert paired_power(0.4, COMPONENTS.standard_error(items, 5), items) >= 0.8
    assert paired_power(0.4, COMPONENTS.standard_error(items - 1, 5), items - 1) < 0.8
    with pytest.raises(ValueError, match="no number of items"):
        find_needed_items(COMPONENTS, 0.0, 5)


def test_the_interval_of_a_share_of_variance_leaves_out_one_item_at_a_time():
    scores, _ = simulate_scores(items=14, conditions=3, repetitions=4)
    one_less = [variance_components(scores.select_items(np.arange(14) != index)) for index in range(14)]
    complete = variance_components(scores)
    for name, (low, high) in share_intervals(scores).items():
        shares = np.array([getattr(result, name) / result.total for result in [*one_less, complete]])
        logits = np.log(shares / (1 - shares))
        reach = stats.t.ppf(0.975, 13) * np.sqrt(13 * np.var(logits[:-1]))
        assert (low, high) == pytest.approx(tuple(1 / (1 + np.exp(-logits[-1] + np.array([reach, -reach])))))


def test_a_component_of_zero_has_an_interval_from_zero():
    scores, _ = simulate_scores(items=14, conditions=3, repetitions=4)
    flat = scores.mean - scores.mean.mean(axis=0) + 4 + np.array([0.0, 0.001, -0.001])
    without = ItemScores(scores.items, scores.conditions, scores.n, scores.missing, flat, scores.within, False)
    assert variance_components(without).condition == 0
    result = share_intervals(without)
    assert "condition" not in result or result["condition"][0] == 0
    assert set(result) >= {"item", "repetition"}


def test_few_items_give_no_interval_of_a_share_of_variance():
    assert share_intervals(simulate_scores(items=9)[0]) == {}
