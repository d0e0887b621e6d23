"""Verdicts that depend on planned answers without a score."""

import numpy as np
import pytest

from grading_app.statistics.condition_pairs import check_missing, fill_worst_cases
from grading_app.statistics.item_scores import ItemScores

NAMES = ("a", "b")


def make_scores(a, b):
    """Return the scores of two columns of single answers; NaN for a missing one."""
    means = np.column_stack([a, b]).astype(float)
    n = (~np.isnan(means)).astype(int)
    is_binary = bool(np.isin(means[n > 0], (0, 1)).all())
    return ItemScores(np.arange(len(means)), np.array([0, 1]), n, 1 - n, means, 0 * means, is_binary)


def fill(n, right, wrong):
    return [1.0] * right + [0.0] * wrong + [np.nan] * (n - right - wrong)


def test_a_model_that_refuses_hard_items_is_not_ahead_if_refusals_are_wrong():
    # B is right on all 12 that it answers, A on 4 of these; on the other 8, A is right and B refuses.
    scores = make_scores([1.0] * 4 + [0.0] * 8 + [1.0] * 8, fill(20, 12, 0))
    checked = check_missing(scores, 0, 1, (0, 1), 1, at_ends=False)
    assert checked.with_missing == (0,)
    assert checked.describe(NAMES) == (
        "This depends on answers without a score: if they count as wrong, no difference is significant."
    )


def test_missing_answers_can_turn_a_verdict_round():
    scores = make_scores([1.0] * 40, fill(40, 6, 0))
    assert (
        check_missing(scores, 0, 1, (0, 1), 0, at_ends=False)
        .describe(NAMES)
        .endswith("if they count as wrong, a is significantly higher than b.")
    )


def test_a_verdict_that_holds_has_no_sentence():
    scores = make_scores([0.0] * 30 + [np.nan], fill(31, 30, 0))
    assert check_missing(scores, 0, 1, (0, 1), 1, at_ends=False).describe(NAMES) == ""
    complete = make_scores([0.0] * 30, [1.0] * 30)
    assert check_missing(complete, 0, 1, (0, 1), 1, at_ends=False).with_missing == ()


def test_missing_ratings_are_tried_at_both_ends_of_the_scale():
    a, b = np.full(30, 3.0), np.where(np.arange(30) % 2, 4.0, 3.0)
    b[:12] = np.nan
    scores = make_scores(a, b)
    low_high = [table.mean[0].tolist() for table in fill_worst_cases(scores, (1, 7), at_ends=True)]
    assert low_high == [[3.0, 7.0], [3.0, 1.0]]
    checked = check_missing(scores, 0, 1, (1, 7), 0, at_ends=True)
    assert checked.with_missing == (1, -1)
    assert checked.describe(NAMES).endswith("at the ends of the scale, either can be significantly higher.")


@pytest.mark.parametrize("at_ends", [False, True])
def test_an_unknown_scale_ends_at_the_lowest_and_highest_score(at_ends):
    scores = make_scores([10.0, 30.0, np.nan], [20.0, 50.0, 40.0])
    filled = [table.mean[2].tolist() for table in fill_worst_cases(scores, None, at_ends=at_ends)]
    assert filled == ([[10.0, 40.0], [50.0, 40.0]] if at_ends else [[10.0, 40.0]])
