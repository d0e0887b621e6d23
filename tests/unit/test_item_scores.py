"""Scores by item and condition: sums, missing answers, pairs, and their stored form."""

import math
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.statistics.clusters import ClusterSums
from grading_app.statistics.item_scores import ItemScores

ITEMS, CONDITIONS = (30, 10, 20), (7, 5)
scores = st.floats(-100, 100).map(lambda value: round(value, 3))
cells = st.fixed_dictionaries(
    {
        (item, condition): st.lists(st.one_of(st.none(), scores), max_size=5)
        for item in ITEMS
        for condition in CONDITIONS
    }
)


def build_item_scores(answers, *, is_binary=False):
    rows = []
    for (item, condition), values in answers.items():
        given_scores = [value for value in values if value is not None]
        mean = fmean(given_scores) if given_scores else None
        within = sum((value - mean) ** 2 for value in given_scores) if given_scores else None
        if values:
            rows.append((item, condition, len(given_scores), len(values) - len(given_scores), mean, within))
    return ItemScores.from_rows(rows, ITEMS, CONDITIONS, is_binary=is_binary)


def compute_sums_by_hand(answers, condition):
    by_item = [[v for v in answers[item, condition] if v is not None] for item in ITEMS]
    by_item = [values for values in by_item if values]
    flat = [value for values in by_item for value in values]
    return ClusterSums(
        n=len(flat),
        total=sum(flat),
        squares=sum(value**2 for value in flat),
        clusters=len(by_item),
        totals_squared=sum(sum(values) ** 2 for values in by_item),
        sizes_by_totals=sum(len(values) * sum(values) for values in by_item),
        sizes_squared=sum(len(values) ** 2 for values in by_item),
    )


@given(cells)
def test_sums_of_a_condition_match_its_scores(answers):
    item_scores = build_item_scores(answers)
    for condition in CONDITIONS:
        expected = compute_sums_by_hand(answers, condition)
        result = item_scores.sum_condition(condition).about(0.0)
        for name in ClusterSums.__slots__:
            assert getattr(result, name) == pytest.approx(getattr(expected, name), abs=1e-6), name


@given(cells, scores)
def test_a_missing_answer_can_count_as_a_score(answers, score):
    filled = {key: [score if value is None else value for value in values] for key, values in answers.items()}
    item_scores, expected = build_item_scores(answers).fill_missing(score), build_item_scores(filled)
    assert item_scores.n.tolist() == expected.n.tolist()
    assert not item_scores.missing.any()
    np.testing.assert_allclose(item_scores.mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(item_scores.within, expected.within, atol=1e-6)


@given(cells)
def test_pairs_are_the_items_with_scores_in_both_conditions(answers):
    item_scores = build_item_scores(answers)
    items, differences = item_scores.pair_conditions(7, 5)
    expected = {
        item: fmean(b) - fmean(a)
        for item in ITEMS
        if (a := [v for v in answers[item, 7] if v is not None])
        and (b := [v for v in answers[item, 5] if v is not None])
    }
    assert item_scores.items[items].tolist() == list(expected)
    assert differences.tolist() == pytest.approx(list(expected.values()))


@given(cells, st.booleans())
def test_the_stored_form_gives_the_same_scores(answers, is_binary):
    item_scores = build_item_scores(answers, is_binary=is_binary)
    decoded = ItemScores.decode(item_scores.encode())
    for name in ("items", "conditions", "n", "missing", "mean", "within"):
        np.testing.assert_array_equal(getattr(decoded, name), getattr(item_scores, name))
    assert decoded.is_binary is is_binary


def test_items_and_conditions_can_be_selected_by_mask_and_by_key():
    item_scores = build_item_scores(
        {(item, condition): [float(item + condition)] for item in ITEMS for condition in CONDITIONS}
    )
    few = item_scores.select_items(np.array([True, False, True])).select_conditions([5])
    assert few.items.tolist() == [30, 20]
    assert few.mean.tolist() == [[35.0], [25.0]]
    with pytest.raises(KeyError):
        item_scores.select_conditions([6])


def test_scores_near_a_billion_keep_their_spread():
    item_scores = ItemScores.from_rows([(30, 7, 2, 0, 1e9 + 0.5, 0.5)], ITEMS, CONDITIONS, is_binary=False)
    assert item_scores.within[0, 0] == 0.5
    assert math.isnan(item_scores.mean[1, 0])


def test_arrays_of_a_wrong_shape_are_refused():
    item_scores = build_item_scores({(item, condition): [1.0] for item in ITEMS for condition in CONDITIONS})
    with pytest.raises(ValueError, match="missing has the shape"):
        ItemScores(
            item_scores.items,
            item_scores.conditions,
            item_scores.n,
            item_scores.missing[:1],
            item_scores.mean,
            item_scores.within,
            False,
        )
