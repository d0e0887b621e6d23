import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.statistics.agreement_coefficients import krippendorff_alpha
from grading_app.statistics.bootstrap import bootstrap
from grading_app.statistics.concordance import lins_concordance
from grading_app.statistics.judge_bias import compare_judge_with_people, compute_comparison, judge_bias, judge_slope
from grading_app.statistics.ratings import Ratings
from tests.factories.recordings import read_csv_rows
from tests.unit.clustered_scores import expect_clustered_mean, group_by_cluster
from tests.unit.published_ratings import NAN, tables

MEASURES = ("concordance", "correlation", "same answer")


def simulate_ratings(units=80, judge_noise=1.0, shift=0.0, slope=1.0, people=3, seed=1):
    """Return simulated ratings. Column 0 is the judge. People observe the truth (variance 4) with error variance 1."""
    draw = np.random.default_rng(seed)
    truth = 2 * draw.standard_normal((units, 1))
    judge = shift + slope * truth + judge_noise * draw.standard_normal((units, 1))
    return Ratings.from_table(np.hstack([judge, truth + draw.standard_normal((units, people))]))


def test_bias_by_hand():
    # Judge less people: 5 - 3 = 2, 4 - 4 = 0, 2 - 1 = 1. Mean 1, standard error sqrt(1/3), t(.975, 2) = 4.302653.
    rows = {"a": (5, 2, 4), "b": (4, None, 4), "c": (2, 1, None), "d": (9, None, None), "e": (None, 1, None)}
    raters = ("judge", "p", "q")
    ratings = Ratings.from_triples(
        (unit, *pair) for unit, row in rows.items() for pair in zip(raters, row, strict=True)
    )
    result = judge_bias(ratings, "judge").result()
    assert (result.estimate, result.se) == (pytest.approx(1), pytest.approx(np.sqrt(1 / 3)))
    assert result.high == pytest.approx(1 + 4.302653 * np.sqrt(1 / 3), abs=1e-5)
    assert (result.units, result.raters, result.ratings, result.left_out) == (3, 3, 7, 2)


def test_the_error_of_the_bias_is_clustered_by_item():
    ratings = simulate_ratings(units=60, shift=1)
    items = {unit: unit // 6 for unit in range(60)}
    result = judge_bias(ratings, 0, items).result()
    excess = ratings.values[:, 0] - ratings.values[:, 1:].mean(axis=1)
    expected = expect_clustered_mean(group_by_cluster(excess.tolist(), items.values()))
    message = (result.estimate, result.se, result.low)
    assert message == pytest.approx((expected.mean, expected.se, expected.low), rel=1e-12)
    assert result.interval == "Student's t, clustered by 10 items"
    assert bootstrap(judge_bias(ratings, 0, items), seed=1, items=items).se == pytest.approx(result.se, rel=0.2)


def test_one_unit_has_a_bias_and_no_interval():
    result = judge_bias(Ratings.from_table([[3, 1]]), 0).result()
    assert (result.estimate, result.low) == (2, None)


@given(st.floats(0.1, 5), st.floats(-5, 5), st.booleans(), st.sampled_from(["deming", "ols"]))
def test_points_on_a_straight_line_give_its_slope(slope, shift, falling, line):
    slope = -slope if falling else slope
    table = [[shift + slope * value, value, value] for value in (1, 2, 4, 7)]
    assert judge_slope(Ratings.from_table(table), 0, line).estimate == pytest.approx(slope, rel=1e-6)


def test_a_judge_uncorrelated_with_people_has_no_slope():
    # The products of deviations cancel out, but not to the last digit of a computer.
    table = [[2, 5], [1, 1], [1, 3], [5, 1], [3, 4], [5, 4], [1, 3]]
    assert judge_slope(Ratings.from_table(table), 0).estimate is None
    assert judge_slope(Ratings.from_table(table), 1).estimate is None


@given(tables(raters=(2, 2), units=(4, 12), missing=False), st.floats(0.2, 5))
def test_demings_line_does_not_depend_on_the_order_of_variables(table, ratio):
    first = judge_slope(Ratings.from_table(table), 0, error_ratio=ratio).estimate
    second = judge_slope(Ratings.from_table(table), 1, error_ratio=1 / ratio).estimate
    if first is not None and abs(first) > 1e-6:
        assert first * second == pytest.approx(1, rel=1e-5)


def test_deming_with_equal_errors_is_the_first_principal_axis():
    ratings = simulate_ratings(people=1)
    axis = np.linalg.eigh(np.cov(ratings.values[:, [1, 0]].T))[1][:, -1]
    assert judge_slope(ratings, 0).estimate == pytest.approx(axis[1] / axis[0])


def test_deming_accounts_for_the_error_of_peoples_means_and_least_squares_does_not():
    # One person with error variance 1 and truth of variance 4: least squares sees 4/5 of the slope.
    ratings = simulate_ratings(units=40_000, slope=0.7, judge_noise=1, people=1)
    deming, ols = judge_slope(ratings, 0), judge_slope(ratings, 0, "ols")
    assert (deming.estimate, ols.estimate) == (pytest.approx(0.7, abs=0.02), pytest.approx(0.56, abs=0.02))
    assert deming.formula.endswith("(Deming, error ratio 1)")
    assert ols.formula.endswith("(least squares)")


def test_a_slope_has_an_interval_by_bootstrap_and_needs_variation():
    result = bootstrap(judge_slope(simulate_ratings(slope=0.6), 0, error_ratio=3), seed=1, resamples=500)
    assert result.low < result.estimate < result.high < 1
    assert judge_slope(Ratings.from_table([[1, 2], [2, 2]]), 0, "ols").estimate is None
    assert judge_slope(Ratings.from_table([[1, 2], [1, 3]]), 0).estimate is None
    with pytest.raises(ValueError, match="positive, not 0"):
        judge_slope(simulate_ratings(), 0, error_ratio=0)
    with pytest.raises(ValueError, match="no ratings by 'nobody'"):
        judge_slope(simulate_ratings(), "nobody")


@pytest.mark.parametrize("measure", MEASURES)
def test_a_judge_that_rates_like_people_reaches_the_ceiling(measure):
    ratings = Ratings.from_table(np.round(simulate_ratings(units=200).values))
    result = compare_judge_with_people(ratings, 0, measure, seed=1, resamples=500)
    assert result.gap.low < 0 < result.gap.high
    assert result.gap.estimate == pytest.approx(result.judge.estimate - result.people.estimate)
    assert result.people.low < result.people.estimate < result.people.high
    assert (result.judge.units, result.judge.raters, result.people.clusters) == (200, 4, 200)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_noisy_judge_stays_below_the_ceiling(measure):
    ratings = Ratings.from_table(np.round(simulate_ratings(units=200, judge_noise=3).values))
    assert compare_judge_with_people(ratings, 0, measure, seed=1, resamples=500).gap.high < 0


def test_a_biased_judge_correlates_but_does_not_concord():
    ratings = simulate_ratings(units=200, shift=4)
    assert compare_judge_with_people(ratings, 0, "concordance", seed=1, resamples=500).gap.high < 0
    assert compare_judge_with_people(ratings, 0, "correlation", seed=1, resamples=500).gap.high > 0


def test_an_errorless_judge_exceeds_every_person():
    assert (
        compare_judge_with_people(
            simulate_ratings(units=200, judge_noise=0), 0, "concordance", seed=1, resamples=500
        ).gap.low
        > 0
    )


def test_the_ceiling_of_two_people_is_their_agreement():
    # Each steps out once before the other: the people's value is the concordance of the pairs, both ways round.
    ratings = simulate_ratings(people=2)
    both_orders = np.vstack([ratings.values[:, [1, 2]], ratings.values[:, [2, 1]]])
    people = compute_comparison(ratings, 0, "concordance")[1]
    assert people.estimate == pytest.approx(lins_concordance(Ratings.from_table(both_orders)).estimate)


def test_self_agreement_by_hand():
    # Unit 0: judge 1, people 1 1 2. Stepping out: 1 (others 1 2), 1 (others 1 2), 2 (others 1 1): people 1/2 1/2 0,
    # judge 1/2 1/2 1. Unit 1: judge 3, people 2 2: people 1 1, judge 0 0. Unit 2 has one person only.
    table = [[1, 1, 1, 2], [3, NAN, 2, 2], [1, 1, NAN, NAN]]
    judge, people, gap = (
        measure.result() for measure in compute_comparison(Ratings.from_table(table), 0, "same answer")
    )
    assert judge.estimate == pytest.approx((2 / 3 + 0) / 2)
    assert people.estimate == pytest.approx((1 / 3 + 1) / 2)
    assert gap.estimate == pytest.approx(1 / 3 - 2 / 3)
    assert (judge.units, judge.left_out, judge.ratings) == (2, 1, 7)


@given(tables(raters=(3, 5), units=(3, 10)), st.sampled_from(MEASURES), st.randoms(use_true_random=False))
def test_results_do_not_depend_on_names_of_people_and_units(table, measure, random):
    people, rows = list(range(1, table.shape[1])), list(range(table.shape[0]))
    random.shuffle(people)
    random.shuffle(rows)
    first = [result.estimate for result in compute_comparison(Ratings.from_table(table), 0, measure)]
    second = [
        result.estimate for result in compute_comparison(Ratings.from_table(table[rows][:, [0, *people]]), 0, measure)
    ]
    assert second == [None if value is None else pytest.approx(value, abs=1e-9) for value in first]


@pytest.mark.parametrize("model", ["gemma", "qwen"])
def test_recorded_models_agree_with_themselves_and_correlate_with_people(model):
    means = {row["image_id"]: float(row["human_valence_mean"]) for row in read_csv_rows("uniform40-items.csv")}
    rows = [
        row for row in read_csv_rows(f"uniform40-trials-{model}.csv") if row["dimension"] == "valence" and row["rating"]
    ]
    samples = Ratings.from_triples((row["image_id"], row["sample_idx"], float(row["rating"])) for row in rows)
    answers = {(row["image_id"], row["sample_idx"]): float(row["rating"]) for row in rows}
    pairs = Ratings.from_triples(
        (answer, rater, value)
        for answer, rating in answers.items()
        for rater, value in (("model", rating), ("people", means[answer[0]]))
    )
    items = {answer: answer[0] for answer in answers}
    assert krippendorff_alpha(samples, "interval").estimate > 0.9
    slope = bootstrap(judge_slope(pairs, "model"), seed=1, items=items, resamples=500)
    # The provider of one of the models refused one image, twenty times.
    assert (slope.units, slope.clusters) == ((800, 40) if model == "gemma" else (780, 39))
    # Both models rate more extremely than the mean person does.
    assert slope.low > 1
    bias, naive = judge_bias(pairs, "model", items).result(), judge_bias(pairs, "model").result()
    assert bias.estimate == naive.estimate
    assert bias.se > 3.5 * naive.se
