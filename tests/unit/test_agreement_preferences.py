import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from grading_app.statistics.bradley_terry import (
    NOT_FINITE,
    Comparison,
    Comparisons,
    PairTally,
    bradley_terry,
    bradley_terry_by_items,
    maximum_likelihood,
)

# A. Agresti (2002), "Categorical data analysis", 2nd ed., table 10.10: wins of the row in the 1987 season.
TEAMS = ("Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore")
BASEBALL = [
    [0, 7, 9, 7, 7, 9, 11],
    [6, 0, 7, 5, 11, 9, 9],
    [4, 6, 0, 7, 7, 8, 12],
    [6, 8, 6, 0, 6, 7, 10],
    [6, 2, 6, 7, 0, 7, 12],
    [4, 4, 5, 6, 6, 0, 6],
    [2, 4, 1, 3, 1, 7, 0],
]
# S. M. Stigler (1994), "Citation patterns in the journals of statistics and probability", Statistical Science 9: how
# often the row was cited by the column.
JOURNALS = ("Biometrika", "Comm Statist", "JASA", "JRSS-B")
CITATIONS = [[0, 730, 498, 221], [33, 0, 68, 17], [320, 813, 0, 142], [284, 276, 325, 0]]


def estimate_strengths(wins):
    result = bradley_terry(Comparisons.from_table(wins, range(len(wins))))
    return [strength.strength for strength in result.strengths]


def connected_wins(size=4):
    """Wins of everyone over everyone."""
    rows = st.lists(st.integers(1, 9), min_size=size, max_size=size)
    return st.lists(rows, min_size=size, max_size=size).map(lambda table: np.array(table) * (1 - np.eye(size)))


@pytest.mark.parametrize(("team", "estimate"), list(zip(TEAMS, (1.58, 1.44, 1.29, 1.25, 1.11, 0.68, 0), strict=True)))
def test_agrestis_baseball_teams(team, estimate):
    odds = bradley_terry(Comparisons.from_table(BASEBALL, TEAMS)).odds(team, "Baltimore")
    assert odds.difference == pytest.approx(estimate, abs=5.1e-3)
    assert odds.se == pytest.approx(0 if team == "Baltimore" else 0.34, abs=0.02)


def test_the_chance_of_boston_against_new_york_follows_from_agrestis_estimates():
    chance, low, high = bradley_terry(Comparisons.from_table(BASEBALL, TEAMS)).odds("Boston", "New York").chances
    assert chance == pytest.approx(1 / (1 + math.exp(1.25 - 1.11)), abs=2e-3)
    assert 0 < low < chance < 0.5 < high < 1


@pytest.mark.parametrize(
    ("journal", "estimate", "se"),
    # As H. Turner & D. Firth (2012), "Bradley-Terry models in R", Journal of Statistical Software 48(9), print them.
    [("Comm Statist", -2.94907, 0.10255), ("JASA", -0.47957, 0.06059), ("JRSS-B", 0.26895, 0.07083)],
)
def test_citations_of_four_journals(journal, estimate, se):
    odds = bradley_terry(Comparisons.from_table(CITATIONS, JOURNALS)).odds(journal, "Biometrika")
    assert (odds.difference, odds.se) == (pytest.approx(estimate, abs=5e-6), pytest.approx(se, abs=5e-6))
    assert (odds.low, odds.high) == (
        pytest.approx(estimate - 1.96 * se, abs=1e-4),
        pytest.approx(estimate + 1.96 * se, abs=1e-4),
    )


def test_two_strengths_differ_by_the_log_odds_of_their_wins():
    odds = bradley_terry(Comparisons.from_table([[0, 6], [2, 0]], "ab")).odds("a", "b")
    assert (odds.difference, odds.chances[0]) == (pytest.approx(math.log(3)), pytest.approx(0.75))
    assert odds.se == pytest.approx(math.sqrt(1 / 6 + 1 / 2))


@pytest.mark.slow
@given(connected_wins(), st.permutations(range(4)))
def test_the_order_of_names_changes_nothing(wins, order):
    result = estimate_strengths(wins[np.ix_(order, order)])
    assert result == pytest.approx([estimate_strengths(wins)[index] for index in order], abs=1e-6)


@given(connected_wins())
def test_everyone_wins_as_often_as_expected_and_strengths_sum_to_zero(wins):
    result = np.array(estimate_strengths(wins))
    chances = 1 / (1 + np.exp(result[None, :] - result[:, None]))
    assert ((wins + wins.T) * chances).sum(axis=1) == pytest.approx(wins.sum(axis=1), abs=1e-6)
    assert sum(result) == pytest.approx(0, abs=1e-9)


@given(connected_wins(), st.integers(2, 1000))
def test_repeated_data_change_only_the_interval(wins, factor):
    once, often = (bradley_terry(Comparisons.from_table(table, range(4))).odds(0, 1) for table in (wins, factor * wins))
    assert often.difference == pytest.approx(once.difference, abs=1e-6)
    assert often.se == pytest.approx(once.se / math.sqrt(factor), rel=1e-4)


def test_ties_count_as_half_wins_in_the_table():
    rows = [("a", "b", 1), ("b", "a", 0.5), ("c", "a", 0), ("b", "c", 1), ("c", "b", 1)]
    result = Comparisons.from_rows(rows)
    assert result.names == ("a", "b", "c")
    assert result.total.tolist() == [[0, 1.5, 1], [0.5, 0, 1], [0, 1, 0]]
    assert result.items == 5


def test_a_tie_is_half_a_win_for_each():
    tied = bradley_terry(Comparisons.from_rows([("a", "b", 0.5)] * 4 + [("a", "b", 1)]))
    assert tied.odds("a", "b").chances[0] == pytest.approx(3 / 5)
    assert tied.comparisons == 5


@pytest.mark.parametrize("row", [("a", "a", 1), ("a", "b", 2), ("a", "b", float("nan"))])
def test_invalid_comparisons_are_rejected(row):
    with pytest.raises(ValueError, match="is no comparison"):
        Comparisons.from_rows([row])


@pytest.mark.parametrize("wins", [[[0, 1]], [[0, -1], [1, 0]], [[1, 1], [1, 0]], [[0, float("nan")], [1, 0]]])
def test_invalid_tables_of_wins_are_rejected(wins):
    with pytest.raises(ValueError, match="square table"):
        Comparisons.from_table(wins, "ab")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "b", 0.5), ("c", "d", 0.5)], "never compared with each other: a, b; c, d"),
        ([("a", "b", 1), ("b", "c", 0.5)], "never lost to any of the others.*: a;"),
        ([("a", "b", 0.5), ("a", "c", 1), ("b", "c", 1)], "never lost to any of the others.*: a, b;"),
        ([], "at least two"),
    ],
)
def test_unbounded_strengths_are_rejected_by_name(rows, message):
    with pytest.raises(ValueError, match=message):
        bradley_terry(Comparisons.from_rows(rows))


def test_smoothing_bounds_names_that_never_lost():
    comparisons = Comparisons.from_rows([("a", "b", 1)] * 3 + [("b", "c", 0.5)])
    result = bradley_terry(comparisons, smoothing=0.5)
    assert result.odds("a", "b").difference == pytest.approx(math.log(3.5 / 0.5))
    assert result.formula == "Bradley-Terry, 0.5 wins added each way for each pair"
    assert result.comparisons == 4
    with pytest.raises(ValueError, match="must not be negative"):
        bradley_terry(comparisons, smoothing=-1)
    with pytest.raises(ValueError, match="never compared"):
        bradley_terry(Comparisons.from_rows([("a", "b", 1), ("c", "d", 1)]), smoothing=0.5)


def test_tables_without_an_estimate_are_nan():
    result = maximum_likelihood(np.array([[[0, 3], [1, 0]], [[0, 3], [0, 0]]], dtype=float))
    assert result[0] == pytest.approx([math.log(3) / 2, -math.log(3) / 2])
    assert np.isnan(result[1]).all()


def test_a_long_chain_is_followed_to_its_ends():
    wins = np.diag([6.0] * 29, 1) + np.diag([4.0] * 29, -1)
    odds = bradley_terry(Comparisons.from_table(wins, range(30))).odds(0, 29)
    assert odds.difference == pytest.approx(29 * math.log(1.5), abs=1e-4)


def simulate_season(draw, truth, items, repeats=1):
    """Return comparisons: each item compares two random players `repeats` times with the same winner."""
    result = []
    for item in range(items):
        first, second = draw.choice(len(truth), 2, replace=False)
        won = float(draw.random() < 1 / (1 + math.exp(truth[second] - truth[first])))
        result += [Comparison(int(first), int(second), won, item)] * repeats
    return Comparisons.from_rows(result)


@pytest.mark.slow
def test_intervals_have_the_stated_coverage():
    # 300 seasons of 33 games a pair; 4 standard errors of .95 are .05.
    truth = np.array([0.8, 0.2, -0.3, -0.7])
    chances = 1 / (1 + np.exp(truth[None, :] - truth[:, None]))
    won = np.triu(np.random.default_rng(12).binomial(33, chances, size=(300, 4, 4)), 1)
    seasons = won + np.tril(33 - won.swapaxes(1, 2), -1)
    odds = [bradley_terry(Comparisons.from_table(season, range(4))).odds(0, 2) for season in seasons]
    assert np.mean([interval.low <= 1.1 <= interval.high for interval in odds]) == pytest.approx(0.95, abs=0.05)


def test_comparisons_of_the_same_item_are_resampled_together():
    draw, truth = np.random.default_rng(13), [0.5, 0.0, -0.5]
    comparisons = simulate_season(draw, truth, 150, repeats=4)
    result, repeated = (bradley_terry_by_items(comparisons, seed=1, resamples=400) for _ in range(2))
    naive = bradley_terry(comparisons)
    # Four copies contain no more information than one: the error is twice that of independent comparisons.
    assert result.odds(0, 2).se == pytest.approx(2 * naive.odds(0, 2).se, rel=0.15)
    assert result.strengths == repeated.strengths
    assert (result.items, result.interval, result.comparisons) == (150, "jackknife of 150 items, Student's t", 600)
    assert all(row.low < row.strength < row.high for row in result.strengths)


def test_too_many_resamples_without_strengths_give_no_interval():
    rows = [Comparison("a", "b", 1, item) for item in range(1199)] + [Comparison("a", "b", 0, 1199)]
    result = bradley_terry_by_items(Comparisons.from_rows(rows), seed=1, resamples=200)
    assert 40 < result.degenerate < 110
    assert (result.strengths[0].low, result.covariance, result.interval) == (None, None, "")
    odds = result.odds("a", "b")
    assert (odds.difference, odds.low, odds.chances[1]) == (pytest.approx(math.log(1199)), None, None)
    assert bradley_terry_by_items(Comparisons.from_rows(rows), seed=1, resamples=200, smoothing=0.5).degenerate == 0


def test_a_name_that_lost_on_a_single_item_has_no_interval():
    rows = [Comparison("a", "b", 1, item) for item in range(19)] + [Comparison("a", "b", 0, 19)]
    result = bradley_terry_by_items(Comparisons.from_rows(rows), seed=1)
    assert (result.strengths[0].low, result.covariance, result.interval) == (None, None, NOT_FINITE)
    assert result.odds("a", "b").difference == pytest.approx(math.log(19))


def test_strengths_of_two_names_have_the_jackknifes_interval_of_the_log_odds():
    won = [1.0] * 11 + [0.0] * 5
    result = bradley_terry_by_items(
        Comparisons.from_rows(("a", "b", win, item) for item, win in enumerate(won)), seed=1
    )
    without = np.array([math.log((11 - win) / (5 - (1 - win))) / 2 for win in won])
    error = math.sqrt(15 * np.var(without))
    (best, _) = result.strengths
    assert (best.strength, best.se) == (pytest.approx(math.log(11 / 5) / 2), pytest.approx(error))
    assert best.high - best.strength == pytest.approx(student.ppf(0.975, 15) * error)


@given(st.lists(st.tuples(st.permutations(range(3)), st.sampled_from([0, 0.5, 1]), st.integers(0, 5)), max_size=25))
def test_tallies_equal_single_comparisons(rows):
    def name(place):
        return "abc"[place]

    single = [Comparison(name(order[0]), name(order[1]), outcome, item) for order, outcome, item in rows]
    items = {}
    for comparison in single:
        items.setdefault(comparison.item, []).append(
            PairTally(comparison.first, comparison.second, comparison.outcome, 1 - comparison.outcome)
        )
    alike = Counter(tuple(sorted(tally)) for tally in items.values())
    added = Comparisons.from_tallies((times, tally) for tally, times in alike.items())
    expected = Comparisons.from_rows(single)
    order = [added.names.index(name) for name in expected.names]
    assert added.total[np.ix_(order, order)].tolist() == expected.total.tolist()
    assert (added.items, len(added.names)) == (expected.items, len(expected.names))


def test_items_with_equal_tallies_are_resampled_like_single_items():
    single = [("a", "b", float(item % 3 == 0), item) for item in range(60)]
    kinds = [(20, [PairTally("a", "b", 1, 0)]), (40, [PairTally("a", "b", 0, 1)])]
    first = bradley_terry_by_items(Comparisons.from_rows(single), seed=1, resamples=4000).odds("a", "b")
    second = bradley_terry_by_items(Comparisons.from_tallies(kinds), seed=2, resamples=4000).odds("a", "b")
    # The standard error of 4,000 resamples has a relative error of 1/90. The tolerance is three times that of both.
    assert second.se == pytest.approx(first.se, rel=0.05)
    assert second.difference == pytest.approx(first.difference)


@pytest.mark.parametrize("tally", [("a", "a", 1, 0), ("a", "b", -1, 2)])
def test_an_empty_tally_is_refused(tally):
    with pytest.raises(ValueError, match="is no tally"):
        Comparisons.from_tallies([(1, [PairTally(*tally)])])
