"""ReasonScape's scores, against published numbers, statsmodels, and an exact bootstrap."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from grading_app.statistics.reason_score import (
    add_tallies,
    bootstrap_geometric_mean,
    bootstrap_score,
    chance_correct,
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
def test_guesses_are_removed_before_wilsons_interval(total, data):
    correct = data.draw(st.integers(0, total))
    guesses = total * data.draw(st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5]))
    result = score_task(Tally(correct, total, guess_chances=guesses)).interval
    low, high = proportion_confint(max(0.0, correct - guesses), total - guesses, method="wilson")
    assert (result.low, result.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


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
    assert bootstrap_score(tallies).score == pytest.approx(743.3, abs=0.1)


def test_the_first_score_takes_the_upper_end_and_subtracts_truncation():
    tallies = {"a": Tally(96, 128), "b": Tally(50, 100, truncated=25)}
    cells = [score_task(tally) for tally in tallies.values()]
    ends = [cell.interval.center + cell.interval.margin - cell.truncation for cell in cells]
    assert reason_score(tallies).score == pytest.approx(1000 * (ends[0] * ends[1]) ** 0.5)


def test_a_fully_truncated_task_makes_the_first_score_zero_and_the_second_small():
    tallies = {"a": Tally(100, 100), "cut": Tally(0, 0, truncated=50)}
    assert reason_score(tallies).score == 0
    assert bootstrap_score(tallies).score == pytest.approx(1000 * 0.01**0.5)


def test_the_second_score_runs_from_10_to_1000():
    assert bootstrap_score({"a": Tally(0, 100), "b": Tally(0, 100)}).score == pytest.approx(10)
    assert bootstrap_score({"a": Tally(100, 100), "b": Tally(7, 7)}).score == pytest.approx(1000)


def test_the_chance_of_a_correct_answer_excludes_guesses_and_truncated_answers():
    assert chance_correct(Tally(75, 100, guess_chances=50.0)) == pytest.approx(0.5)
    assert chance_correct(Tally(75, 100, truncated=100, guess_chances=50.0)) == pytest.approx(0.25)
    assert chance_correct(Tally(40, 100, guess_chances=50.0)) == 0.01


def test_the_interval_matches_all_possible_resamples():
    chances = [0.9, 0.6, 0.3, 0.8]
    every = [np.exp(np.mean(np.log(resample))) for resample in product(chances, repeat=4)]
    low, high = bootstrap_geometric_mean(chances, resamples=200_000)
    assert [low, high] == pytest.approx(list(np.quantile(every, [0.025, 0.975])), rel=0.02)


def test_the_same_tallies_and_seed_give_the_same_interval_in_any_order():
    tallies = {"a": Tally(96, 128), "b": Tally(50, 100, truncated=25), "c": Tally(10, 60)}
    result = bootstrap_score(tallies)
    assert result == bootstrap_score(dict(reversed(tallies.items())))
    assert result.low < result.score < result.high
    assert result.low >= 10
    assert result.high <= 1000


def test_one_task_has_no_interval():
    result = bootstrap_score({"a": Tally(96, 128)})
    assert (result.low, result.high) == (None, None)


def test_tasks_without_answers_make_a_score_incomplete():
    tallies = {"a": Tally(96, 128), "later": Tally(0, 0)}
    result = reason_score(tallies)
    assert (result.missing, result.tasks, result.incomplete, result.marked) == (("later",), 1, True, "817*")
    assert reason_score({"later": Tally(0, 0)}) is None
    assert bootstrap_score({"later": Tally(0, 0)}) is None
    assert reason_score({"a": Tally(96, 128)}, incomplete=["a"]).incomplete
    assert not reason_score({"a": Tally(96, 128)}).incomplete


def test_tallies_of_points_add_up():
    total = add_tallies([Tally(3, 5, 1, 2.5), Tally(4, 6, 0, 1.5)])
    assert total == Tally(7, 11, 1, 4.0)
    assert add_tallies([Tally(1, 1, 0, 0.1)] * 10).guess_chances == 1.0


def test_the_score_per_token_divides_by_the_mean_length_of_an_answer():
    assert reason_score({"a": build_exact_tally(0.5)}).per_token(tokens=2000, answers=10) == pytest.approx(
        2.5, abs=0.01
    )
    assert reason_score({"a": build_exact_tally(0.5)}).per_token(tokens=0, answers=10) is None


def test_no_values_and_negative_values_have_no_geometric_mean():
    for values in ([], [-0.1, 1]):
        with pytest.raises(ValueError, match="no geometric mean"):
            geometric_mean(values)
