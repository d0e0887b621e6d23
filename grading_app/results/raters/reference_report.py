"""Raters compared with references, which are norms and adjudicated scores. Pure functions.

A reference is not a rater: a norm is a mean of many people, and an adjudicated score is a decision after raters
disagreed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from grading_app.statistics.bootstrap import bootstrap, group_by_item, sum_by_item
from grading_app.statistics.concordance import compute_concordance, compute_correlation
from grading_app.statistics.correlation import pearson
from grading_app.statistics.intervals import SHARE_BOUNDS, AgreementEstimate, estimate_mean
from grading_app.statistics.judge_bias import judge_bias, select_common_units
from grading_app.statistics.measures import Coefficient
from grading_app.statistics.ratings import Floats, Ratings

RESAMPLES, CONFIDENCE = 1_000, 0.95
MAX_RATERS = 12  # With more raters, people are compared only by their mean.
PEOPLE = "people"


@dataclass(frozen=True)
class ReferenceComparison:
    """One rater compared with one reference, on the units that have both.

    rater: `PEOPLE` for the mean of all people. people: their number; 0 for a single rater.
    same: the share of equal ratings; for a mean of repeated ratings, over its single ratings; None for `PEOPLE`.
    """

    reference: Hashable
    rater: Hashable
    people: int
    bias: AgreementEstimate
    r: AgreementEstimate
    concordance: AgreementEstimate
    same: AgreementEstimate | None


def compare_with_references(
    ratings: Ratings,
    references: Sequence[Hashable],
    raters: Sequence[Hashable],
    humans: Sequence[Hashable],
    singles: Mapping[str, Sequence[str]],
    *,
    seed: int,
) -> Iterator[ReferenceComparison]:
    """Yield the comparisons of each reference with each rater, and with the mean of people if there are several.

    Pairs without common units are skipped. singles: the columns of single ratings behind a mean, by rater.
    """
    people = [rater for rater in raters if rater in humans]
    single_raters = raters if len(raters) <= MAX_RATERS else [rater for rater in raters if rater not in humans]
    for reference in references:
        for rater in single_raters:
            columns: Sequence[Hashable] = singles.get(str(rater)) or [rater]
            both = ratings.select_raters(rater, reference)
            if (comparison := _compare_columns(both, ratings.select_raters(*columns).values, 0, seed)) is not None:
                yield comparison
        if len(people) > 1:
            # Two columns: the mean of the people who rated the unit, and the reference.
            table = ratings.select_raters(*people)
            n = table.per_unit
            means = np.where(n > 0, np.nansum(table.values, axis=1) / np.maximum(n, 1), np.nan)
            values = np.column_stack([means, ratings.select_raters(reference).values[:, 0]])
            both = Ratings(values, ratings.units, (PEOPLE, reference), (), ratings.row_items)
            if (comparison := _compare_columns(both, None, len(people), seed)) is not None:
                yield comparison


def _compare_columns(both: Ratings, single: Floats | None, people: int, seed: int) -> ReferenceComparison | None:
    """Return the comparison of the first column with the second; single: (units, repetitions) of the first."""
    rater, reference = both.raters
    common, left_out = select_common_units(both, rater)
    if not common.units:
        return None
    x, y = common.values.T
    is_common = both.given.all(axis=1)

    def estimate(name: str, compute: Callable[[Floats], Floats]) -> AgreementEstimate:
        return bootstrap(
            Coefficient(name, common, left_out, compute, bounds=(-1.0, 1.0)), seed=seed, resamples=RESAMPLES
        )

    def compute_lin(times: Floats) -> Floats:
        # NaN if a column does not vary, because it would be 0 for any other column.
        is_constant = np.isnan(compute_correlation(x, y, times))
        coefficients: Floats = np.where(is_constant, np.nan, compute_concordance(x, y, times))
        return coefficients

    same = None
    if single is not None:
        # The interval of the share is clustered by item.
        share = estimate_mean(
            sum_by_item(group_by_item(common, None), common.times, _compute_unit_shares(single[is_common], y[:, None])),
            SHARE_BOUNDS,
        )
        counts = (
            "share of equal ratings",
            share.mean if share else None,
            common.n_units,
            1,
            common.n_ratings,
            left_out,
        )
        same = (
            AgreementEstimate(*counts)
            if share is None or share.low is None
            else AgreementEstimate(*counts, share.se, share.low, share.high, CONFIDENCE, share.method, share.clusters)
        )
    return ReferenceComparison(
        reference,
        rater,
        people,
        judge_bias(both, rater).result(),
        _estimate_correlation(common, left_out, seed),
        estimate("Lin's concordance correlation coefficient", compute_lin),
        same,
    )


def _estimate_correlation(common: Ratings, left_out: int, seed: int) -> AgreementEstimate:
    """Return Pearson's r as all other pages do (`pearson`); resampled by item if an item has several units."""
    x, y = common.values.T
    clusters = group_by_item(common, None).n
    if clusters < common.n_units:
        compute = partial(compute_correlation, x, y)
        return bootstrap(
            Coefficient("Pearson's r", common, left_out, compute, bounds=(-1.0, 1.0)), seed=seed, resamples=RESAMPLES
        )
    times = common.times.astype(np.intp)
    r = pearson(np.repeat(x, times), np.repeat(y, times))
    counts = ("Pearson's r", r.r if r else None, common.n_units, 2, common.n_ratings, left_out)
    if r is None or r.low is None:
        return AgreementEstimate(*counts, clusters=clusters)
    return AgreementEstimate(*counts, None, r.low, r.high, CONFIDENCE, r.method, clusters)


def compute_equal_share(
    ratings: Ratings, first: str, second: str, singles: Mapping[str, Sequence[str]]
) -> float | None:
    """Return the share of equal ratings of two raters, over the units that both rated.

    A mean of repeated ratings is replaced by its single ratings. Each of them is compared with each rating of the other
    rater.
    """
    both = ratings.select_raters(first, second).given.all(axis=1)
    if not both.any():
        return None
    first_values, second_values = (
        ratings.select_raters(*(singles.get(rater) or [rater])).values[both] for rater in (first, second)
    )
    shares = np.stack(
        [_compute_unit_shares(first_values, second_values[:, [at]]) for at in range(second_values.shape[1])]
    )
    is_known = ~np.isnan(shares)
    unit_shares = np.where(is_known, shares, 0.0).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
    return float(np.average(unit_shares, weights=ratings.times[both]))


def _compute_unit_shares(single: Floats, value: Floats) -> Floats:
    """Return the share of single ratings (units, repetitions) that equal the value (units, 1): (units,).

    NaN for units without a value.
    """
    is_known = ~np.isnan(single)
    shares: Floats = ((single == value) & is_known).sum(axis=1) / np.maximum(is_known.sum(axis=1), 1)
    return np.where(np.isnan(value[:, 0]), np.nan, shares)
