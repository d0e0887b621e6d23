"""Bootstrap intervals for any measure of agreement.

Whole items are drawn, because answers to one item are correlated.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from evalsite.lib.stats import student_quantile
from grading_app.statistics.clusters import ClusterSums
from grading_app.statistics.intervals import AgreementEstimate, describe_coverage, estimate_mean
from grading_app.statistics.measures import Coefficient
from grading_app.statistics.ratings import Floats, Integers, Ratings

MAX_DEGENERATE_SHARE = 0.1
# Below this number of items, `bootstrap` uses the jackknife: resamples vary less than samples, so percentile intervals
# are too narrow. Over 5, 8, 20, 40 or 200 items, a 95 % percentile interval of alpha covers 75, 82, 87, 91 or 92 %
# (`docs/statistics.md`).
MIN_PERCENTILE_ITEMS = 1000
NO_SPREAD = "no interval: every choice of items gives the same value"
NO_JACKKNIFE = "no interval: without one of the items the measure is undefined"
ONE_ITEM_DISAGREES = "no interval: all disagreement lies in one item"
AGREEMENT_SEED, AGREEMENT_RESAMPLES = 1, 1_000
TOLERANCE = 1e-9  # Values that differ by less are equal within the rounding error.
MAX_CELLS_IN_MEMORY = 2_000_000  # Resamples x ratings: bounds the memory of a batch to tens of megabytes.
MAX_CACHED_CELLS = 8_000_000  # Resamples x kinds, of two bytes each.
MAX_CACHED_CLUSTERS = 1_000  # The number of clusters of one kind; more draws might not fit in two bytes.


def bootstrap(
    coefficient: Coefficient,
    *,
    seed: int,
    items: Mapping[Hashable, Hashable] | None = None,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> AgreementEstimate:
    """Return the measure with its interval over items. The same seed gives the same interval.

    items: unit -> item, if an item has several units (its answers). Items are drawn with all their units. By default,
    each unit is an item.
    From MIN_PERCENTILE_ITEMS items, the interval is the percentile interval. Resamples for which the measure is
    undefined (a single category) are excluded and counted. If they are more than a tenth, there is no interval, because
    the exclusion would bias it: B. Efron & R. J. Tibshirani (1993), "An introduction to the bootstrap", ch. 13.
    Resampling of whole clusters: A. C. Davison & D. V. Hinkley (1997), "Bootstrap methods and their application",
    section 3.8.
    Below MIN_PERCENTILE_ITEMS items, the interval is Student's with the jackknife's standard error: R. G. Miller
    (1974), "The jackknife - a review", Biometrika 61, 1-15. A measure of at most 1 is transformed by atanh first, as
    Fisher's z, if its values allow it. So its interval ends below 1.
    A measure that is a mean over units (`unit_values`) has the interval of `estimate_mean`, clustered by item.
    If at most one item disagrees, there is no interval, because other items may differ.
    Raise ValueError for fewer than 100 resamples, a confidence outside 0 to 1, or a unit without an item.
    """
    if resamples < 100 or not 0 < confidence < 1:
        raise ValueError("a bootstrap needs at least 100 resamples and a confidence between 0 and 1")
    without_interval, clusters = replace(coefficient, spread=None).result(), group_by_item(coefficient.ratings, items)
    estimate = replace(without_interval, clusters=clusters.n)
    if estimate.clusters < 2 or without_interval.estimate is None:
        return estimate
    if coefficient.unit_values is not None:
        estimate = _add_unit_interval(estimate, coefficient, clusters, confidence)
    elif estimate.clusters < MIN_PERCENTILE_ITEMS:
        estimate = _add_jackknife_interval(estimate, coefficient, clusters, confidence)
    else:
        cells = max(coefficient.ratings.values.size, len(clusters.kind_sizes))
        steps = draw_kind_counts(clusters.kind_sizes, resamples, seed, cells)
        values = np.concatenate([coefficient.compute(clusters.times(times)) for times in steps])
        estimate = add_percentile_interval(replace(estimate, resamples=resamples), values, confidence)
    note = describe_coverage(estimate.formula, estimate.clusters)
    return replace(estimate, interval=f"{estimate.interval}; {note}") if note and estimate.low is not None else estimate


def estimate_agreement(coefficient: Coefficient, items: Mapping[Hashable, Hashable] | None = None) -> AgreementEstimate:
    """Return a measure of agreement with the interval that every page shows for it. items: as for `bootstrap`."""
    return bootstrap(coefficient, seed=AGREEMENT_SEED, items=items, resamples=AGREEMENT_RESAMPLES)


def _add_unit_interval(
    estimate: AgreementEstimate, coefficient: Coefficient, clusters: Clusters, confidence: float
) -> AgreementEstimate:
    """Return the estimate with the interval of a mean over units."""
    sums = sum_by_item(clusters, coefficient.ratings.times, coefficient.unit_values)  # type: ignore[arg-type]
    mean = estimate_mean(sums, coefficient.bounds, confidence)
    if mean is None or mean.low is None:
        return estimate
    return replace(estimate, se=mean.se, low=mean.low, high=mean.high, confidence=confidence, interval=mean.method)


def sum_by_item(clusters: Clusters, times: Floats, values: Floats) -> ClusterSums:
    """Return the sums of the units' values, over all units and over items. Each value counts for `times` units."""
    n = float(times.sum())
    origin = float(np.round(times @ values / n)) if n else 0.0
    values = values - origin
    totals, sizes, kind_sizes = clusters.totals(values), clusters.sizes, clusters.kind_sizes
    over_items = kind_sizes @ totals**2, kind_sizes @ (totals * sizes), kind_sizes @ sizes**2
    unit_values = n, float(times @ values), float(times @ values**2)
    return ClusterSums(*[*unit_values, clusters.n, *map(float, over_items), origin])


def _add_jackknife_interval(
    estimate: AgreementEstimate, coefficient: Coefficient, clusters: Clusters, confidence: float
) -> AgreementEstimate:
    """Return the estimate with Student's interval, from the values that leave out one item each."""
    used = clusters.sizes > 0
    kind_sizes = clusters.kind_sizes * used
    without = coefficient.compute(clusters.times((kind_sizes[None, :] - np.eye(len(kind_sizes)))[used]))
    n, times, center_value = estimate.clusters, kind_sizes[used], estimate.estimate or 0.0
    lowest, highest = coefficient.bounds
    if np.isnan(without).any():
        return replace(estimate, interval=NO_JACKKNIFE)
    if np.ptp(without) <= TOLERANCE * max(1.0, float(np.abs(without).max())):
        return replace(estimate, interval=NO_SPREAD)
    if highest == 1 and without.max() > 1 - TOLERANCE:
        return replace(estimate, interval=ONE_ITEM_DISAGREES)
    is_z = highest == 1 and min(center_value, float(without.min())) > TOLERANCE - 1
    values, center = (np.arctanh(without), np.arctanh(center_value)) if is_z else (without, center_value)
    spread = (n - 1) / n * float(times @ (values - np.average(values, weights=times)) ** 2)
    ends = center + student_quantile(confidence, n - 1) * np.sqrt(spread) * np.array([-1, 1])
    low, high = np.clip(np.tanh(ends) if is_z else ends, lowest, highest).tolist()
    se = np.sqrt(spread) * (1 - center_value**2 if is_z else 1)
    method = f"jackknife of {n:,} items, Student's t" + (" of Fisher's z" if is_z else "")
    return replace(estimate, se=float(se), low=low, high=high, confidence=confidence, interval=method)


def add_percentile_interval(estimate: AgreementEstimate, values: Floats, confidence: float) -> AgreementEstimate:
    """Return the estimate with the percentile interval of the values of resamples (NaN: undefined)."""
    defined = values[~np.isnan(values)]
    estimate = replace(estimate, degenerate=len(values) - len(defined))
    if estimate.degenerate > MAX_DEGENERATE_SHARE * len(values):
        return estimate
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    if np.ptp(defined) <= TOLERANCE * max(1.0, float(np.abs(defined).max())):
        return replace(estimate, interval=NO_SPREAD)
    se = float(defined.std(ddof=1))
    method = f"percentile bootstrap of {estimate.clusters:,} items"
    return replace(estimate, se=se, low=float(low), high=float(high), confidence=confidence, interval=method)


@dataclass(frozen=True, eq=False)
class Clusters:
    """The items that the units belong to. Items with the same ratings form one kind.

    kind_sizes: (kinds,), the number of items of each kind.
    codes: (units,), the kind of each unit's item; None if rows stand for many units.
    unit_counts: (kinds, units), the number of units of each row in an item of the kind; None if each row is one unit.
    """

    kind_sizes: Floats
    codes: Integers | None
    unit_counts: Floats | None

    def totals(self, values: Floats) -> Floats:
        """Return the sums of values over each item's units: (units,) -> (kinds,)."""
        if self.unit_counts is not None:
            return self.unit_counts @ values
        totals: Floats = np.bincount(self.codes, values, minlength=len(self.kind_sizes)).astype(np.float64)  # type: ignore[arg-type]
        return totals

    @property
    def sizes(self) -> Floats:
        """The number of units of an item of each kind: (kinds,)."""
        units = self.codes if self.unit_counts is None else self.unit_counts.T
        return self.totals(np.ones(len(units)))  # type: ignore[arg-type]

    @property
    def n(self) -> int:
        """The number of items that have units."""
        return round(float(self.kind_sizes[self.sizes > 0].sum()))

    def select_units(self, is_selected: NDArray[np.bool_]) -> Clusters:
        """Return the clusters of these units only. Kinds without units stay."""
        codes = None if self.codes is None else self.codes[is_selected]
        return Clusters(self.kind_sizes, codes, None if self.unit_counts is None else self.unit_counts[:, is_selected])

    def times(self, drawn: Floats) -> Floats:
        """Return how often each unit was drawn: (resamples, kinds) draws of items -> (resamples, units)."""
        times: Floats = drawn[:, self.codes] if self.unit_counts is None else drawn @ self.unit_counts
        return times


def group_by_item(ratings: Ratings, items: Mapping[Hashable, Hashable] | None) -> Clusters:
    """Return the items of these units. items: unit -> item; by default, each unit is an item.

    Rows that stand for many units know their items (`Ratings.row_items`). Raise ValueError for a unit without an item.
    """
    if ratings.row_items is not None:
        unit_counts, kind_sizes = ratings.row_items.units, ratings.row_items.kind_sizes
        has_units = unit_counts.sum(axis=1) > 0
        return Clusters(kind_sizes[has_units], None, unit_counts[has_units])
    codes = np.arange(len(ratings.units))
    if items is not None:
        unit_without_item = next((unit for unit in ratings.units if unit not in items), None)
        if unit_without_item is not None:
            raise ValueError(f"the unit {unit_without_item!r} has no item")
        numbers: dict[Hashable, int] = {}
        codes = np.array([numbers.setdefault(items[unit], len(numbers)) for unit in ratings.units], dtype=np.intp)
    return Clusters(np.ones(int(codes.max()) + 1 if codes.size else 0), codes, None)


def draw_kind_counts(kind_sizes: Floats, resamples: int, seed: int, cells: int) -> Iterator[Floats]:
    """Yield the number of draws of each kind of cluster, in batches of (some resamples, kinds).

    kind_sizes: (kinds,), the number of interchangeable clusters of each kind.
    cells: the number of values of one resample, which bounds the size of a batch.
    """
    batch = max(1, MAX_CELLS_IN_MEMORY // cells)
    if resamples * len(kind_sizes) > MAX_CACHED_CELLS or kind_sizes.max(initial=0) > MAX_CACHED_CLUSTERS:
        random = np.random.default_rng(seed)
        for start in range(0, resamples, batch):
            yield _draw(random, kind_sizes, min(batch, resamples - start)).astype(np.float64)
        return
    draws = _get_cached_draws(kind_sizes.tobytes(), resamples, seed)
    for start in range(0, resamples, batch):
        yield draws[start : start + batch].astype(np.float64)


def _draw(random: np.random.Generator, kind_sizes: Floats, resamples: int) -> NDArray[np.int64]:
    n = int(kind_sizes.sum())
    return random.multinomial(n, kind_sizes / n, size=resamples)


@lru_cache(maxsize=2)
def _get_cached_draws(kind_sizes: bytes, resamples: int, seed: int) -> NDArray[np.uint16]:
    """Return all draws. A hundred conditions over the same items share them; drawing takes most of the time."""
    return _draw(np.random.default_rng(seed), np.frombuffer(kind_sizes), resamples).astype(np.uint16)
