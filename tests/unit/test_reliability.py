"""Reliability over repetitions: ICC(1,1) of published ratings, and Spearman and Brown's formula."""

import numpy as np
import pytest

from grading_app.statistics.intraclass import repeatability, spearman_brown
from grading_app.statistics.item_scores import ItemScores

# P. E. Shrout & J. L. Fleiss (1979), table 2: six targets, four judges. ICC(1,1) = .17, ICC(1,4) = .44 (table 4).
SHROUT_FLEISS = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]


def build_scores(rows):
    cells = [
        (index, 1, len(row), 0, float(np.mean(row)), float(np.var(row) * len(row)))
        for index, row in enumerate(rows)
        if row
    ]
    return ItemScores.from_rows(cells, range(len(rows)), [1], is_binary=False)


def test_the_published_correlations_are_reproduced():
    result = repeatability(build_scores(SHROUT_FLEISS), 1)
    assert (result.items, result.repetitions) == (6, 4)
    assert result.single == pytest.approx(0.17, abs=0.005)
    assert result.reliability_of_mean(4) == pytest.approx(0.44, abs=0.005)


def test_unequal_repetitions_use_searles_mean_size():
    rows = [[1, 2], [3], [5, 6, 7]]
    result = repeatability(build_scores(rows), 1)
    assert result.repetitions == pytest.approx((6 - (4 + 1 + 9) / 6) / 2)


@pytest.mark.parametrize("rows", [[[1, 2]], [[1], [2], [3]], [[4, 4], [4, 4]]])
def test_reliability_is_undefined_without_two_items_repetitions_or_variance(rows):
    assert repeatability(build_scores(rows), 1) is None


def test_spearman_brown_stays_within_zero_and_one():
    assert spearman_brown(0.5, 1) == 0.5
    assert spearman_brown(0.5, 3) == pytest.approx(0.75)
    assert spearman_brown(-0.2, 10) == 0
