"""Reliability of means over repetitions: the one-way intraclass correlation, and Spearman and Brown's formula."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grading_app.statistics.item_scores import ItemScores


@dataclass(frozen=True, slots=True)
class Repeatability:
    """The reliability of a condition. single: of one score, ICC(1,1). repetitions: the mean number of scores, n0."""

    single: float
    items: int
    repetitions: float

    def reliability_of_mean(self, repetitions: float) -> float:
        return spearman_brown(self.single, repetitions)


def spearman_brown(single: float, repetitions: float) -> float:
    """Return the reliability of the mean of k scores: k r / (1 + (k - 1) r).

    C. Spearman (1910), British Journal of Psychology 3, 271-295; W. Brown (1910), ibid. 296-322. A single reliability
    below zero counts as zero, because repetitions cannot make it worse.
    """
    r = max(0.0, single)
    return repetitions * r / (1 + (repetitions - 1) * r)


def repeatability(scores: ItemScores, condition: int) -> Repeatability | None:
    """Return the reliability of a single score of one condition over its items; None if it is undefined.

    ICC(1,1) = (B - W) / (B + (n0 - 1) W) by the one-way analysis of variance, with items as groups: P. E. Shrout &
    J. L. Fleiss (1979), Psychological Bulletin 86, 420-428. For unequal numbers of scores, n0 is
    (N - sum n_i^2 / N) / (G - 1): S. R. Searle (1971), Linear Models, ch. 9. It needs two items and one repeated item.
    """
    column = scores.find_column(condition)
    has_score = scores.n[:, column] > 0
    n, means, within = (
        scores.n[has_score, column].astype(np.float64),
        scores.mean[has_score, column],
        scores.within[has_score, column],
    )
    total, groups = float(n.sum()), len(n)
    if groups < 2 or total <= groups:
        return None
    grand = float((n * means).sum()) / total
    between = float((n * (means - grand) ** 2).sum()) / (groups - 1)
    within_square = float(within.sum()) / (total - groups)
    mean_size = (total - float((n**2).sum()) / total) / (groups - 1)
    denominator = between + (mean_size - 1) * within_square
    return Repeatability((between - within_square) / denominator, groups, mean_size) if denominator > 0 else None
