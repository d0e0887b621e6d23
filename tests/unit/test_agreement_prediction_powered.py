import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.statistics.judge_bias import corrected_mean
from grading_app.statistics.ratings import Ratings
from tests.unit.clustered_scores import expect_clustered_mean, group_by_cluster
from tests.unit.published_ratings import NAN


def draw_sample(draw, units=300, rated=60, shift=0.8, noise=0.5, worthless=False):
    """A judge (column 0) who is wrong by `shift` and some noise, and a person who rated the first units; truth has
    mean 0."""
    truth = draw.standard_normal(units)
    judge = draw.standard_normal(units) * 3 if worthless else truth + noise * draw.standard_normal(units) + shift
    person = np.where(np.arange(units) < rated, truth, NAN)
    return Ratings.from_table(np.stack([judge, person], axis=1))


def test_the_corrected_mean_by_hand():
    # Rated: judge 4 2 6 4, people 3 2 5 5; unrated: judge 5 3 4. Means: people 15/4, judge on rated 4, on unrated 4.
    # The residuals of the people's mean, of the judge's on rated, and on unrated units: each over the number of units.
    table = [[4, 3], [2, 2], [6, 5], [4, 5], [5, NAN], [3, NAN], [4, NAN], [NAN, 7]]
    result = corrected_mean(Ratings.from_table(table), 0)
    fixed = np.array([-0.75, -1.75, 1.25, 1.25]) / 4
    judged, others = np.array([0, -2, 2, 0]) / 4, np.array([1, -1, 0]) / 3
    share = float(fixed @ judged / (judged @ judged + others @ others))
    assert (result.corrected.estimate, result.rectifier) == (pytest.approx(15 / 4), -0.25)
    assert result.judge_share == pytest.approx(share)
    squares = float(((fixed - share * judged) ** 2).sum() + share**2 * (others @ others))
    assert result.corrected.se == pytest.approx(math.sqrt(4 / 2 * squares))
    assert (result.people.estimate, result.judge.estimate) == (15 / 4, 4.0)
    assert (result.corrected.units, result.corrected.raters, result.corrected.ratings) == (7, 1, 4)
    assert (result.corrected.left_out, result.people.units, result.judge.ratings) == (1, 4, 7)


def test_intervals_have_the_stated_coverage_and_are_narrower_than_those_of_people_alone():
    # 600 samples; 4 standard errors of .95 are .036.
    draw = np.random.default_rng(21)
    results = [corrected_mean(draw_sample(draw), 0) for _ in range(600)]
    assert np.mean([result.corrected.low <= 0 <= result.corrected.high for result in results]) == pytest.approx(
        0.95, abs=0.036
    )
    assert np.mean([result.corrected.estimate for result in results]) == pytest.approx(0, abs=0.02)
    widths = [
        (result.corrected.high - result.corrected.low, result.people.high - result.people.low) for result in results
    ]
    narrower, classical = np.mean(widths, axis=0)
    # Truth 1, noise .25: a share of .64 makes the ratio .60.
    assert narrower / classical == pytest.approx(0.60, abs=0.03)


def test_the_estimate_loses_no_precision_to_a_worthless_judge():
    draw = np.random.default_rng(5)
    results = [corrected_mean(draw_sample(draw, worthless=True), 0) for _ in range(200)]
    assert np.mean([result.judge_share for result in results]) < 0.05
    ratio = np.mean([result.corrected.se / result.people.se for result in results])
    assert 0.97 < ratio <= math.sqrt(59 / 58)  # Only the degree of freedom of the fitted share.


@given(st.integers(0, 2**32 - 1))
def test_the_judges_share_never_makes_the_error_larger_than_that_of_people_alone(seed):
    result = corrected_mean(draw_sample(np.random.default_rng(seed), units=40, rated=12), 0)
    assert 0 <= result.judge_share <= 1
    factor = math.sqrt(11 / 10) if result.judge_share else 1  # The degree of freedom of the fitted share.
    assert result.corrected.se <= factor * result.people.se + 1e-12


def test_intervals_from_few_human_rated_items_have_the_stated_coverage():
    # 400 samples; 4 standard errors of .95 are .044. Without the degree of freedom that the share takes it is .88.
    draw = np.random.default_rng(7)
    results = [corrected_mean(draw_sample(draw, rated=4, noise=1), 0) for _ in range(400)]
    assert np.mean([result.corrected.low <= 0 <= result.corrected.high for result in results]) == pytest.approx(
        0.95, abs=0.044
    )
    three = corrected_mean(draw_sample(draw, rated=3), 0)
    assert (three.judge_share, three.corrected.estimate) == (0, three.people.estimate)


def test_answers_to_the_same_item_are_clustered():
    # Each unit occurs five times. Clustered by item, the error equals that of the units once.
    once = draw_sample(np.random.default_rng(3))
    fivefold = Ratings.from_table(np.repeat(once.values, 5, axis=0))
    items = {unit: unit // 5 for unit in fivefold.units}
    single, clustered = corrected_mean(once, 0).corrected, corrected_mean(fivefold, 0, items).corrected
    assert (clustered.estimate, clustered.se, clustered.low) == (
        pytest.approx(single.estimate),
        pytest.approx(single.se),
        pytest.approx(single.low),
    )
    assert corrected_mean(fivefold, 0).corrected.se < 0.5 * clustered.se
    assert clustered.interval == "Student's t, clustered by 60 items that people rated"


def test_peoples_own_mean_is_the_clustered_mean():
    ratings = draw_sample(np.random.default_rng(4), units=30, rated=30)
    items = {unit: unit // 3 for unit in ratings.units}
    result = corrected_mean(ratings, 0, items)
    expected = expect_clustered_mean(group_by_cluster(ratings.values[:, 1].tolist(), items.values()))
    assert (result.people.se, result.people.high) == (pytest.approx(expected.se), pytest.approx(expected.high))
    # People rated every unit, so the judge adds no information.
    assert (result.judge_share, result.corrected.estimate) == (0, result.people.estimate)


def test_a_unit_counts_once_regardless_of_its_number_of_people():
    result = corrected_mean(Ratings.from_table([[4, 3, NAN], [2, 1, NAN], [5, NAN, NAN]]), 0)
    two = corrected_mean(Ratings.from_table([[4, 2, 4], [2, 1, NAN], [5, NAN, NAN]]), 0)
    assert result.corrected.estimate == two.corrected.estimate
    assert (result.corrected.raters, two.corrected.raters, two.corrected.ratings) == (1, 2, 3)


def test_samples_that_cannot_be_corrected_are_rejected():
    with pytest.raises(ValueError, match="no unit was rated by the judge and by people"):
        corrected_mean(Ratings.from_table([[1, NAN], [NAN, 2]]), 0)
    with pytest.raises(ValueError, match="no ratings by 'x'"):
        corrected_mean(Ratings.from_table([[1, 2]]), "x")
    with pytest.raises(ValueError, match="the unit 1 has no item"):
        corrected_mean(Ratings.from_table([[1, 2], [1, NAN]]), 0, {0: "a"})
    lone = corrected_mean(Ratings.from_table([[1, 2], [3, NAN]]), 0)
    assert (lone.corrected.estimate, lone.corrected.low, lone.people.se) == (2, None, None)


@pytest.mark.parametrize("people", [[1.0] * 12, [1.0] * 11 + [0.0], [0.0] * 12])
def test_the_interval_of_a_share_stays_within_0_and_1_and_has_a_width(people):
    judge = [1.0] * 11 + [0.0] * 9 + [1.0] * 20
    table = np.stack([judge, people + [np.nan] * 28], axis=1)
    result = corrected_mean(Ratings.from_table(table), 0)
    for estimate in (result.corrected, result.people):
        assert 0 <= estimate.low <= estimate.high <= 1
    assert result.people.high - result.people.low > 0.1


def test_ratings_without_spread_have_no_interval():
    table = [[4.0, 5.0]] * 12 + [[4.0, np.nan]] * 20
    result = corrected_mean(Ratings.from_table(table), 0).corrected
    assert (result.estimate, result.low, result.high, result.interval) == (5, None, None, "")
