"""Raters compared with references: norms, and adjudicated scores. Pure functions: ratings in, comparisons out.

A reference is no rater. A norm is a mean of many people, and an adjudicated score settles what raters said.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grading_app.statistics.bootstrap import bootstrap, group_by_item, sum_by_item
from grading_app.statistics.concordance import concordance, correlation
from grading_app.statistics.estimates import Estimate
from grading_app.statistics.intervals import SHARE_BOUNDS, estimate_mean
from grading_app.statistics.judge_bias import judge_bias, select_common_units
from grading_app.statistics.measures import Coefficient
from grading_app.statistics.ratings import Floats, Ratings

RESAMPLES, CONFIDENCE = 1_000, 0.95
MOST_RATERS = 12  # More people than this are compared by their mean alone.
PEOPLE = "people"


@dataclass(frozen=True)
class ReferenceComparison:
    """One rater compared with one reference, on the units that have both.

    rater: `PEOPLE` for the mean of all people. people: their number; 0 for a single rater. same: the share of equal
    ratings; of a mean of repeated ratings, over its single ratings; None for the mean of people.
    """

    reference: Hashable
    rater: Hashable
    people: int
    bias: Estimate
    r: Estimate
    concordance: Estimate
    same: Estimate | None


def compare_with_references(
    ratings: Ratings,
    references: Sequence[Hashable],
    raters: Sequence[Hashable],
    humans: Sequence[Hashable],
    singles: Mapping[str, Sequence[str]],
    *,
    seed: int,
) -> Iterator[ReferenceComparison]:
    """Yield a comparison of each reference and rater with units in common, then one for the mean of two people or more.

    singles: the columns of single ratings behind a mean, by rater.
    """
    people = [rater for rater in raters if rater in humans]
    named = raters if len(raters) <= MOST_RATERS else [rater for rater in raters if rater not in humans]
    for reference in references:
        for rater in named:
            columns: Sequence[Hashable] = singles.get(str(rater)) or [rater]
            both = ratings.select_raters(rater, reference)
            if (comparison := _compare_columns(both, ratings.select_raters(*columns).values, 0, seed)) is not None:
                yield comparison
        if len(people) > 1:
            both = _average_people(ratings, people, reference)
            if (comparison := _compare_columns(both, None, len(people), seed)) is not None:
                yield comparison


def _compare_columns(both: Ratings, single: Floats | None, people: int, seed: int) -> ReferenceComparison | None:
    """Return the comparison of the first column with the second; single: (units, repetitions) of the first."""
    rater, reference = both.raters
    used, left_out = select_common_units(both, rater)
    if not used.units:
        return None
    x, y = used.values.T
    kept = both.given.all(axis=1)

    def estimate(name: str, compute: Callable[[Floats], Floats]) -> Estimate:
        return bootstrap(Coefficient(name, used, left_out, compute, bounds=(-1.0, 1.0)), seed=seed, resamples=RESAMPLES)

    same = None
    if single is not None:
        same = _estimate_equal_share(used, left_out, _compute_unit_shares(single[kept], y[:, None]))
    return ReferenceComparison(
        reference,
        rater,
        people,
        judge_bias(both, rater).result(),
        estimate("Pearson's r", lambda times: correlation(x, y, times)),
        estimate("Lin's concordance correlation coefficient", lambda times: _compute_concordance(x, y, times)),
        same,
    )


def _compute_concordance(x: Floats, y: Floats, times: Floats) -> Floats:
    """Return Lin's coefficient; NaN if a column does not vary, because it would be 0 whatever the other says."""
    found: Floats = np.where(np.isnan(correlation(x, y, times)), np.nan, concordance(x, y, times))
    return found


def _estimate_equal_share(used: Ratings, left_out: int, equal: Floats) -> Estimate:
    """Return the share of equal ratings (units,) with its interval clustered by item."""
    found = estimate_mean(sum_by_item(group_by_item(used, None), used.times, equal), SHARE_BOUNDS)
    counts = ("share of equal ratings", found.mean if found else None, used.n_units, 1, used.n_ratings, left_out)
    if found is None or found.low is None:
        return Estimate(*counts)
    return Estimate(*counts, found.se, found.low, found.high, CONFIDENCE, found.method, found.clusters)


def _average_people(ratings: Ratings, people: Sequence[Hashable], reference: Hashable) -> Ratings:
    """Return two columns: the mean of the people who rated the unit, and the reference."""
    table = ratings.select_raters(*people)
    n = table.per_unit
    means = np.where(n > 0, np.nansum(table.values, axis=1) / np.maximum(n, 1), np.nan)
    values = np.column_stack([means, ratings.select_raters(reference).values[:, 0]])
    return Ratings(values, ratings.units, (PEOPLE, reference), (), ratings.row_items)


def compute_equal_share(
    ratings: Ratings, first: str, second: str, singles: Mapping[str, Sequence[str]]
) -> float | None:
    """Return the share of equal ratings of two raters, over the units that both rated.

    A mean of repeated ratings is replaced by its single ratings: each is compared with each of the other rater.
    """
    both = ratings.select_raters(first, second).given.all(axis=1)
    if not both.any():
        return None
    one, other = (ratings.select_raters(*(singles.get(rater) or [rater])).values[both] for rater in (first, second))
    shares = np.stack([_compute_unit_shares(one, other[:, [at]]) for at in range(other.shape[1])])
    given = ~np.isnan(shares)
    of_unit = np.where(given, shares, 0.0).sum(axis=0) / np.maximum(given.sum(axis=0), 1)
    return float(np.average(of_unit, weights=ratings.times[both]))


def _compute_unit_shares(single: Floats, value: Floats) -> Floats:
    """Return how many of the single ratings (units, repetitions) equal the value (units, 1), as a share: (units,).

    NaN where the value is missing.
    """
    given = ~np.isnan(single)
    shares: Floats = ((single == value) & given).sum(axis=1) / np.maximum(given.sum(axis=1), 1)
    return np.where(np.isnan(value[:, 0]), np.nan, shares)
