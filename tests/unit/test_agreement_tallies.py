"""Tallied ratings, with one row for all units rated alike, give the numbers of the single ratings."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grading_app.statistics.agreement_coefficients import cohens_kappa, confusion_matrix, fleiss_kappa
from grading_app.statistics.bootstrap import bootstrap
from grading_app.statistics.judge_bias import (
    compute_comparison,
    corrected_mean,
    judge_bias,
    judge_slope,
    limits_of_agreement,
)
from grading_app.statistics.ratings import Ratings, RowItems
from tests.unit.published_ratings import tables
from tests.unit.test_agreement_bootstrap import MEASURES

JUDGE = 0


def list_items(table, items):
    return {unit: unit % items for unit in range(len(table))}


def make_tally(table, items):
    """Return the tally of a table of units x raters, as the database query returns it."""
    lines = Counter((items[unit], tuple(row)) for unit, row in enumerate(np.nan_to_num(table, nan=-1).tolist()))
    kinds = {kind: {index: value for index, value in enumerate(kind) if value >= 0} for _, kind in lines}
    return Ratings.from_counts(((item, kind, n) for (item, kind), n in lines.items()), kinds, range(table.shape[1]))


def list_numbers(estimate):
    names = ("estimate", "units", "raters", "ratings", "left_out", "se", "low", "high", "clusters")
    return [pytest.approx(value, abs=1e-8) for name in names for value in [getattr(estimate, name)]]


def compute_result(make, ratings):
    """Return the numbers of a measure, or the reason why it has none."""
    try:
        estimate = make(ratings)
        return list_numbers(estimate.result() if hasattr(estimate, "result") else estimate)
    except ValueError as error:
        return str(error)


@given(tables(), st.sampled_from(sorted(MEASURES)), st.integers(1, 4))
def test_tallied_units_give_the_same_measures_and_intervals(table, name, items):
    make = MEASURES[name]
    assert compute_result(make, make_tally(table, list_items(table, items))) == compute_result(
        make, Ratings.from_table(table)
    )


@pytest.mark.slow
@given(tables(raters=(3, 5)), st.integers(1, 4))
def test_tallied_units_give_the_same_comparison_of_a_judge_with_people(table, items):
    of_item = list_items(table, items)
    added, plain = make_tally(table, of_item), Ratings.from_table(table)
    assert compute_result(lambda ratings: judge_slope(ratings, JUDGE), added) == compute_result(
        lambda ratings: judge_slope(ratings, JUDGE), plain
    )
    assert list_numbers(judge_bias(added, JUDGE).result()) == list_numbers(judge_bias(plain, JUDGE, of_item).result())
    for first, second in zip(*(compute_comparison(r, JUDGE, "same answer") for r in (added, plain)), strict=True):
        assert list_numbers(first.result()) == list_numbers(second.result())


@given(tables(raters=(3, 4), units=(4, 14)), st.integers(2, 4))
def test_tallied_units_give_the_same_corrected_mean(table, items):
    given_by_judge = ~np.isnan(table[:, JUDGE])
    assume((given_by_judge & (~np.isnan(table[:, 1:])).any(axis=1)).any())
    of_item = list_items(table, items)
    added = corrected_mean(make_tally(table, of_item), JUDGE)
    plain = corrected_mean(Ratings.from_table(table), JUDGE, of_item)
    assert (added.judge_share, added.rectifier) == pytest.approx((plain.judge_share, plain.rectifier), abs=1e-7)
    for first, second in ((added.corrected, plain.corrected), (added.people, plain.people), (added.judge, plain.judge)):
        assert list_numbers(first) == list_numbers(second)


@given(tables(raters=(2, 2)), st.integers(1, 4))
def test_tallied_units_give_the_same_confusion_matrix(table, items):
    added, plain = make_tally(table, list_items(table, items)), Ratings.from_table(table)
    assert confusion_matrix(added, 0, 1) == confusion_matrix(plain, 0, 1)


def test_the_same_resampled_items_give_the_same_bootstrap():
    draw = np.random.default_rng(3)
    table = draw.integers(1, 6, size=(60, 3)).astype(float)
    of_item = list_items(table, 20)
    kinds, rows = np.unique(table, axis=0, return_inverse=True)
    counts = np.zeros((20, len(kinds)))
    np.add.at(counts, ([of_item[unit] for unit in range(60)], rows.ravel()), 1)
    row_items = RowItems(counts, np.ones(20))
    added = Ratings(kinds, tuple(range(len(kinds))), (0, 1, 2), (), row_items)
    for name in ("fleiss", "ordinal", "2,1", "w"):
        first = bootstrap(MEASURES[name](added), seed=4, resamples=300)
        second = bootstrap(MEASURES[name](Ratings.from_table(table)), seed=4, resamples=300, items=of_item)
        assert list_numbers(first) == list_numbers(second)


def test_equal_items_are_resampled_like_single_items():
    # The standard error of 4,000 resamples has a relative error of 1/90. The tolerance is three times that of both.
    draw = np.random.default_rng(8)
    table = draw.integers(0, 2, size=(200, 2)).astype(float)
    of_item = {unit: unit // 2 for unit in range(200)}
    added = make_tally(table, of_item)
    assert len(added.row_items.kind_sizes) <= 10
    first = bootstrap(cohens_kappa(added), seed=1, resamples=4000)
    second = bootstrap(cohens_kappa(Ratings.from_table(table)), seed=2, resamples=4000, items=of_item)
    assert (first.clusters, first.units) == (second.clusters, second.units) == (100, 200)
    assert first.se == pytest.approx(second.se, rel=0.05)


def test_a_million_units_need_one_row_per_rating_pattern():
    lines = [(item, (a, b), 250 if a == b else 10) for item in range(1000) for a in range(3) for b in range(3)]
    kinds = {(a, b): {"x": a, "y": b} for a in range(3) for b in range(3)}
    ratings = Ratings.from_counts(lines, kinds, ["x", "y"])
    assert (ratings.n_units, ratings.n_ratings, len(ratings.units), len(ratings.row_items.kind_sizes)) == (
        810_000,
        1_620_000,
        9,
        1,
    )
    assert fleiss_kappa(ratings).estimate == pytest.approx(1 - (60 / 810) / (2 / 3))


def test_limits_of_agreement_count_the_units_of_each_difference():
    table = np.array([[1, 2, 2], [1, 2, 2], [3, 1, 2]])
    estimate = limits_of_agreement(make_tally(table.astype(float), list_items(table, 3)), JUDGE, seed=1, resamples=100)
    assert sorted(zip(estimate.differences, estimate.times, strict=True)) == [(-1.0, 2), (1.5, 1)]
    assert estimate.mean == pytest.approx(-0.5 / 3)
