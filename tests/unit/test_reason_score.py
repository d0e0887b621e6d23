"""ReasonScape's scores, against published numbers and statsmodels."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from grading_app.statistics.reason_score import (
    MIN_TASKS,
    chance_correct,
    chance_score,
    estimate_geometric_mean,
    geometric_mean,
    reason_score,
    score_task,
)
from runs_app.stopping.rules import Tally


def build_exact_tally(share, n=10**9):
    """Return a tally whose Wilson center is the share and whose margin is almost zero."""
    return Tally(round(share * n), n)


def test_a_task_without_guessing_has_the_published_wilson_interval():
    interval = score_task(Tally(96, 128)).interval
    assert (round(interval.center, 5), round(interval.margin, 5)) == (0.74272, 0.07427)


@given(st.integers(1, 400), st.data())
def test_a_cell_maps_wilsons_interval_of_all_answers_and_the_first_score_uses_the_published_one(total, data):
    correct = data.draw(st.integers(0, total))
    chance = data.draw(st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5]))
    result = score_task(Tally(correct, total, guess_chances=total * chance))
    ends = [max(0.0, (end - chance) / (1 - chance)) for end in proportion_confint(correct, total, method="wilson")]
    assert (result.interval.low, result.interval.high) == pytest.approx(ends, abs=1e-9)
    _, published = proportion_confint(max(0.0, correct - total * chance), total * (1 - chance), method="wilson")
    assert result.optimistic == pytest.approx(published, abs=1e-9)


def test_truncated_answers_are_a_share_of_all_and_no_part_of_accuracy():
    cell = score_task(Tally(96, 128, truncated=32))
    assert cell.truncation == 0.2
    assert cell.interval == score_task(Tally(96, 128)).interval
    assert cell.optimistic == pytest.approx(0.74272 + 0.07427 - 0.2, abs=1e-5)


@pytest.mark.parametrize(
    ("tally", "complete", "text"),
    [
        (Tally(96, 128), True, ".67 - .82"),
        (Tally(96, 128, truncated=2), True, ".67 - .82"),
        (Tally(96, 128, truncated=32), True, ".67 - .82 [-.20]"),
        (Tally(96, 128), False, ".67 - .82*"),
        (Tally(100, 100), True, ".96 - 1.00"),
        (Tally(0, 0, truncated=5), True, "N/A [-1.00]"),
        (Tally(0, 0), False, "N/A*"),
    ],
)
def test_a_cell_is_formatted_as_on_the_leaderboard(tally, complete, text):
    assert score_task(tally, complete=complete).describe() == text


def test_the_geometric_mean_of_eleven_good_tasks_and_a_bad_task():
    assert round(geometric_mean([0.95] * 11 + [0.05]), 4) == 0.7433
    assert round(geometric_mean([0.95] * 11 + [0.01]), 4) == 0.65
    tallies = {str(number): build_exact_tally(0.95) for number in range(11)} | {"bad": build_exact_tally(0.05)}
    assert reason_score(tallies).score == pytest.approx(743.3, abs=0.1)
    assert chance_score(tallies).score == pytest.approx(743.3, abs=0.1)


def test_the_first_score_takes_the_upper_end_and_subtracts_truncation():
    tallies = {"a": Tally(96, 128, guess_chances=16), "b": Tally(50, 100, truncated=25)}
    published = [tally.interval(correction="excess_counts") for tally in tallies.values()]
    ends = [published[0].center + published[0].margin, published[1].center + published[1].margin - 0.2]
    assert reason_score(tallies).score == pytest.approx(1000 * (ends[0] * ends[1]) ** 0.5)


def test_a_fully_truncated_task_makes_the_first_score_zero_and_the_second_small():
    tallies = {"a": Tally(100, 100), "cut": Tally(0, 0, truncated=50)}
    assert reason_score(tallies).score == 0
    assert chance_score(tallies).score == pytest.approx(1000 * 0.01**0.5)


def test_the_second_score_runs_from_10_to_1000():
    assert chance_score({"a": Tally(0, 100), "b": Tally(0, 100)}).score == pytest.approx(10)
    assert chance_score({"a": Tally(100, 100), "b": Tally(7, 7)}).score == pytest.approx(1000)


def test_the_chance_of_a_correct_answer_excludes_guesses_and_truncated_answers():
    assert chance_correct(Tally(75, 100, guess_chances=50.0)) == pytest.approx(0.5)
    assert chance_correct(Tally(75, 100, truncated=100, guess_chances=50.0)) == pytest.approx(0.25)
    assert chance_correct(Tally(40, 100, guess_chances=50.0)) == 0.01


def test_few_tasks_have_a_score_without_an_interval():
    for n in (1, 3, MIN_TASKS - 1):
        score = chance_score({str(task): Tally(96, 128) for task in range(n)})
        assert (score.score, score.low, score.high) == (pytest.approx(750), None, None)


@pytest.mark.parametrize("n", [MIN_TASKS, 20, 40])
def test_the_interval_over_tasks_covers_the_score_of_a_population_with_a_few_failed_tasks(n):
    draw = np.random.default_rng(1)
    population = np.where(draw.random(100_000) < 0.1, draw.uniform(0.01, 0.3, 100_000), draw.uniform(0.8, 1, 100_000))
    truth, hits = math.exp(float(np.log(population).mean())), 0
    for _ in range(400):
        low, high = estimate_geometric_mean(draw.choice(population, n).tolist())
        hits += low <= truth <= high
    assert hits / 400 >= 0.93


@given(st.lists(st.integers(0, 60), min_size=MIN_TASKS, max_size=30))
def test_the_interval_contains_its_score_and_stays_on_the_scale_in_any_order(rights):
    tallies = {str(task): Tally(right, 60) for task, right in enumerate(rights)}
    result = chance_score(tallies)
    assert result == chance_score(dict(reversed(tallies.items())))
    assert 10 - 1e-6 <= result.low <= result.score <= result.high <= 1000 + 1e-6
    assert result.low < result.high


def test_tasks_without_answers_make_a_score_incomplete():
    tallies = {"a": Tally(96, 128), "later": Tally(0, 0)}
    result = reason_score(tallies)
    assert (result.missing, result.tasks, result.incomplete, result.marked) == (("later",), 1, True, "817*")
    assert reason_score({"later": Tally(0, 0)}) is None
    assert chance_score({"later": Tally(0, 0)}) is None
    assert reason_score({"a": Tally(96, 128)}, incomplete=["a"]).incomplete
    assert not reason_score({"a": Tally(96, 128)}).incomplete


def test_the_score_per_token_divides_by_the_mean_length_of_an_answer():
    assert reason_score({"a": build_exact_tally(0.5)}).per_token(tokens=2000, answers=10) == pytest.approx(
        2.5, abs=0.01
    )
    assert reason_score({"a": build_exact_tally(0.5)}).per_token(tokens=0, answers=10) is None


def test_no_values_and_negative_values_have_no_geometric_mean():
    for values in ([], [-0.1, 1]):
        with pytest.raises(ValueError, match="no geometric mean"):
            geometric_mean(values)
