import subprocess
import sys

import numpy as np
import pytest

from grading_app.statistics.ratings import Ratings

NAN = np.nan


def test_triples_in_any_order_give_the_same_table():
    result = Ratings.from_triples([("b", "judge", 2), ("a", "rater", 1.5), ("b", "rater", 3), ("c", "rater", None)])
    assert (result.units, result.raters) == (("b", "a", "c"), ("judge", "rater"))
    np.testing.assert_array_equal(result.values, [[2, 3], [NAN, 1.5], [NAN, NAN]])
    assert (result.n_ratings, result.n_raters, result.per_unit.tolist()) == (3, 2, [2, 1, 0])


def test_labels_stand_for_numbers_in_their_order():
    result = Ratings.from_triples([(1, "a", "good"), (1, "b", "bad"), (2, "a", None)], labels=["bad", "fair", "good"])
    np.testing.assert_array_equal(result.values, [[2, 0], [NAN, NAN]])
    assert result.labels == ("bad", "fair", "good")


@pytest.mark.parametrize(
    ("triples", "labels", "message"),
    [
        ([("u", "a", 1), ("u", "a", 1)], None, "'a' rated 'u' twice"),
        ([("u", "a", "good")], None, "the rating of 'u' by 'a' is 'good', which is not a number"),
        ([("u", "a", "odd")], ["good"], "'odd', which is not among the labels"),
        ([("u", "a", float("inf"))], None, "a rating is infinite"),
    ],
)
def test_invalid_triples_are_rejected_by_name(triples, labels, message):
    with pytest.raises(ValueError, match=message):
        Ratings.from_triples(triples, labels)


@pytest.mark.parametrize("arguments", [(["u"], ["a", "b"]), (["u", "u"], ["a"]), (["u"], ["a"])])
def test_names_must_fit_the_table_and_be_unique(arguments):
    with pytest.raises(ValueError):
        Ratings(np.ones((2, 1)), *(tuple(names) for names in arguments))


def test_a_table_has_two_dimensions():
    with pytest.raises(ValueError, match="not of 1 dimensions"):
        Ratings.from_table([1, 2, 3])


def test_units_and_raters_can_be_selected():
    result = Ratings.from_table([[1, NAN, 3], [4, 5, 6], [NAN, NAN, 7]])
    assert result.with_at_least(2).units == (0, 1)
    assert result.drop_incomplete().units == (1,)
    assert result.select_raters(2, 0).values[1].tolist() == [6, 4]
    assert result.drop_rater(1).raters == (0, 2)
    assert result.categories.tolist() == [1, 3, 4, 5, 6, 7]
    with pytest.raises(ValueError, match="no ratings by 'x'"):
        result.drop_rater("x")


def test_importing_estimates_loads_neither_numpy_nor_django():
    code = "import sys, grading_app.statistics.intervals; sys.exit(any(n in sys.modules for n in ('numpy', 'django')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
