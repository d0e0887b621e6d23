"""Scores that are huge, tiny or equal: every statistic has a finite result, or none, and no function raises."""

import math
from dataclasses import fields, is_dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grading_app.statistics import reference
from grading_app.statistics.agreement_coefficients import (
    cohens_kappa,
    fleiss_kappa,
    kendalls_w,
    krippendorff_alpha,
    percent_agreement,
)
from grading_app.statistics.bootstrap import bootstrap
from grading_app.statistics.concordance import lins_concordance
from grading_app.statistics.condition_pairs import compare_conditions, permutation_p_values, wilcoxon_p
from grading_app.statistics.correlation import pearson
from grading_app.statistics.factorial_model import category_interaction, fit_factors
from grading_app.statistics.intervals import estimate_mean, sum_clusters
from grading_app.statistics.intraclass import FORMS, intraclass_correlation, repeatability
from grading_app.statistics.item_scores import ItemScores
from grading_app.statistics.judge_bias import corrected_mean, judge_bias, judge_slope, limits_of_agreement
from grading_app.statistics.paired import MIN_CHANGED, estimate_change
from grading_app.statistics.ratings import Ratings
from grading_app.statistics.variance_components import share_intervals, variance_components
from runs_app.scorers.scorers import LARGEST_SCORE, Score

EXTREMES = (0.0, 1.0, -1.0, 7.0, LARGEST_SCORE, -LARGEST_SCORE, 1e30, 1e9 + 1, 1e-9, 1e-160, 1e-300, 5e-324)
SCORES = st.one_of(st.sampled_from(EXTREMES), st.floats(-LARGEST_SCORE, LARGEST_SCORE))


@st.composite
def columns(draw, n_columns=2, items=(1, 30)):
    """Return a table of items and columns: hostile values, or one value and its neighbours."""
    n, size = draw(st.integers(*items)), draw(SCORES)
    few = st.sampled_from(draw(st.lists(SCORES, min_size=1, max_size=3)))
    values = draw(st.sampled_from([few, SCORES, st.integers(1, 7).map(lambda step: step * size / 8)]))
    table = draw(st.lists(st.lists(values, min_size=n_columns, max_size=n_columns), min_size=n, max_size=n))
    return np.array(table, dtype=np.float64)


def require_finite(result, name=""):
    """Fail if a number in the result is NaN or infinite."""
    if isinstance(result, float | np.floating):
        assert math.isfinite(result), name
    elif is_dataclass(result) and not isinstance(result, type):
        for field in fields(result):
            if field.name not in ("ratings", "clusters"):
                require_finite(getattr(result, field.name), f"{name}.{field.name}")
    elif isinstance(result, dict):
        for key, value in result.items():
            require_finite(value, f"{name}[{key}]")
    elif isinstance(result, list | tuple):
        for value in result:
            require_finite(value, name)


def make_scores(table, repetitions=1):
    items, conditions = table.shape
    n = np.full((items, conditions), repetitions)
    within = np.zeros((items, conditions))
    return ItemScores(np.arange(items), np.arange(conditions), n, 0 * n, table, within, False)


def test_a_score_beyond_the_largest_is_refused():
    assert Score(LARGEST_SCORE).value == 1e50
    for value in (1e300, -1e300, math.inf, math.nan):
        with pytest.raises(ValueError, match="is not a valid score"):
            Score(value)


@given(columns(1), st.integers(1, 3))
def test_a_mean(table, per_item):
    values = table[:, 0].tolist()
    result = estimate_mean(sum_clusters(values, [at // per_item for at in range(len(values))]))
    require_finite(result)
    if result.low is not None:
        assert result.low <= result.mean <= result.high


@given(columns(2))
def test_a_paired_change(table):
    differences = table[:, 1] / 2 - table[:, 0] / 2
    changed = differences[differences != 0]
    sd = float(differences.std(ddof=1)) if len(differences) > 1 else None
    few = changed.tolist() if len(changed) < MIN_CHANGED else None
    if few is None and len(differences) <= 16:
        return
    require_finite(estimate_change(len(differences), float(differences.mean()), sd, few))


@given(columns(2))
def test_two_conditions(table):
    require_finite(compare_conditions(make_scores(table), 0, 1))
    require_finite(compare_conditions(make_scores(table), 0, 1, (0.0, 1.0)))
    differences = table[:, 1] - table[:, 0]
    require_finite(wilcoxon_p(differences))
    require_finite(permutation_p_values([differences], resamples=50))


@pytest.mark.parametrize(
    "statistic",
    [
        reference.paired_difference,
        reference.welch_difference,
        reference.spearman,
        reference.least_squares,
        reference.deming,
        lambda x, y: reference.error_interval(x, y, "mae"),
        lambda x, y: reference.error_interval(x, y, "rmse"),
        lambda x, y: reference.root_mean_square(x - y),
        lambda x, y: reference.reference_reliability(x, np.abs(y), np.full(len(x), 5.0)),
        lambda x, y: [float(value) for end in reference.confidence_band(x, y, x) or () for value in end],
        pearson,
    ],
)
@settings(max_examples=30)
@given(table=columns(2))
def test_two_columns(statistic, table):
    require_finite(statistic(table[:, 0], table[:, 1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "measure",
    [
        *(
            lambda ratings, level=level: krippendorff_alpha(ratings, level)
            for level in ("nominal", "ordinal", "interval")
        ),
        *(partial(intraclass_correlation, form=form) for form in FORMS),
        fleiss_kappa,
        partial(fleiss_kappa, weights="quadratic"),
        percent_agreement,
        kendalls_w,
    ],
)
@settings(max_examples=20)
@given(table=columns(3, (2, 14)))
def test_agreement_of_three_raters(measure, table):
    require_finite(bootstrap(measure(Ratings.from_table(table)), seed=1, resamples=100))


@pytest.mark.slow
@settings(max_examples=30)
@given(columns(2, (2, 14)))
def test_a_judge_and_a_person(table):
    ratings = Ratings.from_table(table)
    for measure in (cohens_kappa, lambda rated: cohens_kappa(rated, "quadratic"), lins_concordance):
        require_finite(bootstrap(measure(ratings), seed=1, resamples=100))
    require_finite(judge_bias(ratings, 0).result())
    require_finite(bootstrap(judge_slope(ratings, 0), seed=1, resamples=100))
    require_finite(limits_of_agreement(ratings, 0, seed=1, resamples=100))
    require_finite(corrected_mean(ratings, 0))


@pytest.mark.slow
@settings(max_examples=30)
@given(columns(4, (1, 14)), st.integers(1, 3))
def test_a_design(table, repetitions):
    scores = make_scores(table, repetitions)
    require_finite(variance_components(scores))
    require_finite(share_intervals(scores))
    require_finite(repeatability(scores, 0))
    require_finite(fit_factors(table, {"model": (0, 0, 1, 1), "prompt": (0, 1, 0, 1)}))
    require_finite(category_interaction(table, [("a", "b")[at % 2] for at in range(len(table))]))
    for values in (
        scores.item_means(),
        scores.disagreement(),
        scores.repetition_spread(),
        scores.norm_distance(table[:, 0]),
    ):
        require_finite([float(value) for value in values if not np.isnan(value)])
