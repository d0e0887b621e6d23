"""Ranks with ties, and Kendall's coefficient of concordance."""

from __future__ import annotations

import numpy as np

from grading_app.statistics.measures import Coefficient, divide
from grading_app.statistics.ratings import Floats, Integers, Ratings


class Ranking:
    """The order of some values, which gives their mid-ranks for any weights."""

    def __init__(self, values: Floats) -> None:
        """Sort the values: (n,), without NaN."""
        self.order: Integers = np.argsort(values, kind="stable")
        ordered = values[self.order]
        last_of_tie = np.append(ordered[1:] != ordered[:-1], True)
        self.ends: Integers = np.flatnonzero(last_of_tie)
        tie = np.concatenate([[0], np.cumsum(last_of_tie)[:-1]])
        self.tie_of: Integers = np.empty(len(values), dtype=np.intp)
        self.tie_of[self.order] = tie

    def tie_sizes(self, times: Floats) -> Floats:
        """Return the weight of each distinct value, ascending: (resamples, n) -> (resamples, distinct values)."""
        upto = np.cumsum(times[:, self.order], axis=1)[:, self.ends]
        return np.diff(upto, axis=1, prepend=0.0)

    def midranks(self, times: Floats) -> Floats:
        """Return the mid-ranks among all values, from 1: (resamples, n) weights -> (resamples, n)."""
        sizes = self.tie_sizes(times)
        ranks: Floats = np.cumsum(sizes, axis=1) - (sizes - 1) / 2
        return ranks[:, self.tie_of]


def kendalls_w(ratings: Ratings) -> Coefficient:
    """Return Kendall's coefficient of concordance of m raters who order the same n units, corrected for ties (0 to 1).

    W = 12 S / (m^2 (n^3 - n) - m T). S is the sum of squares of the units' rank sums about their mean m (n + 1) / 2,
    with mid-ranks for ties. T = sum over raters and ties of t units of t^3 - t.
    M. G. Kendall (1948), "Rank correlation methods", ch. 6; with ties as in S. Siegel (1956), "Nonparametric
    statistics", pp. 229-238. Only units that every rater rated are used. W is undefined if each rater ties all units.
    Raise ValueError for a single rater.
    """
    raters = len(ratings.raters)
    if raters < 2:
        raise ValueError("Kendall's W needs at least two raters")
    used = ratings.drop_incomplete()
    rankings = [Ranking(column) for column in used.values.T]

    def compute(times: Floats) -> Floats:
        n = times.sum(axis=1)
        sums = sum((ranking.midranks(times) for ranking in rankings), np.zeros(times.shape))
        squares = (times * (sums - raters * (n[:, None] + 1) / 2) ** 2).sum(axis=1)
        ties = sum(((t**3 - t).sum(axis=1) for t in (ranking.tie_sizes(times) for ranking in rankings)), 0 * n)
        return divide(12 * squares, raters**2 * (n**3 - n) - raters * ties)

    return Coefficient(
        "Kendall's W, corrected for ties", used, ratings.n_units - used.n_units, compute, bounds=(0.0, 1.0)
    )
