"""Bootstrap intervals for any measure of agreement.

Whole items are drawn, because answers to one item are correlated.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from evalsite.lib.stats.t_interval import student_quantile
from grading_app.statistics.clusters import ClusterSums
from grading_app.statistics.estimates import Estimate
from grading_app.statistics.intervals import estimate_mean
from grading_app.statistics.known_coverage import describe_coverage
from grading_app.statistics.measures import Coefficient
from grading_app.statistics.ratings import Floats, Ratings, Whole

MOST_DEGENERATE = 0.1
# Over 5, 8, 20 or 40 items, a 95 % percentile interval of alpha covers 75, 82, 87 or 91 %, and over 200 items 92 %,
# because resamples vary less than samples. Below this number of items `bootstrap` uses the jackknife
# (`docs/statistics.md`).
FEW_ITEMS = 1000
NO_SPREAD = "no interval: every choice of items gives the same value"
NO_JACKKNIFE = "no interval: without one of the items the measure is not defined"
ONE_DISAGREES = "no interval: all disagreement lies in one item"
ALIKE = 1e-9  # Values that differ by less are equal but for rounding error.
CELLS_AT_ONCE = 2_000_000  # of resamples x ratings: bounds the memory of a step to tens of megabytes
CELLS_KEPT = 8_000_000  # of resamples x kinds, two bytes each
MOST_KEPT = 1_000  # Interchangeable clusters of one kind, so that a count of draws fits in two bytes.


def bootstrap(
    coefficient: Coefficient,
    *,
    seed: int,
    items: Mapping[Hashable, Hashable] | None = None,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Estimate:
    """Return the measure with its interval over items. The same seed gives the same interval.

    items: unit -> item, if an item has several units (its answers). Items are drawn or left out with all their units.
    Without it each unit is an item.
    From FEW_ITEMS items, the interval is the percentile interval. Resamples for which the measure is not defined (one
    category alone) are left out and counted. If they are more than a tenth, there is no interval, because leaving them
    out would bias it: B. Efron & R. J. Tibshirani (1993), "An introduction to the bootstrap", ch. 13; resampling whole
    clusters: A. C. Davison & D. V. Hinkley (1997), "Bootstrap methods and their application", section 3.8.
    Below FEW_ITEMS items it is Student's with the jackknife's standard error, because percentiles of so few items are
    too narrow: R. G. Miller (1974), "The jackknife - a review", Biometrika 61, 1-15. A measure of at most 1 is
    transformed by atanh first, as Fisher's z, if its values allow it; so its interval ends below 1.
    A measure that is a mean over units (`of_units`) has the interval of `estimate_mean`, clustered by item.
    If no item disagrees, or only one, there is no interval, because other items may differ.
    Raise ValueError for fewer than 100 resamples, a confidence outside 0 to 1, or a unit without an item.
    """
    if resamples < 100 or not 0 < confidence < 1:
        raise ValueError("a bootstrap takes 100 resamples or more, and a confidence between 0 and 1")
    plain, clusters = replace(coefficient, spread=None).result(), group_by_item(coefficient.ratings, items)
    found = replace(plain, clusters=clusters.n)
    if found.clusters < 2 or plain.estimate is None:
        return found
    if coefficient.unit_values is not None:
        found = _add_unit_interval(found, coefficient, clusters, confidence)
    elif found.clusters < FEW_ITEMS:
        found = _add_jackknife_interval(found, coefficient, clusters, confidence)
    else:
        cells = max(coefficient.ratings.values.size, len(clusters.alike))
        steps = draw_kind_counts(clusters.alike, resamples, seed, cells)
        drawn = np.concatenate([coefficient.compute(clusters.times(times)) for times in steps])
        found = add_percentile_interval(replace(found, resamples=resamples), drawn, confidence)
    note = describe_coverage(found.formula, found.clusters)
    return replace(found, interval=f"{found.interval}; {note}") if note and found.low is not None else found


def _add_unit_interval(found: Estimate, coefficient: Coefficient, clusters: Clusters, confidence: float) -> Estimate:
    """Return the estimate with the interval of a mean over units."""
    sums = sum_by_item(clusters, coefficient.ratings.times, coefficient.unit_values)  # type: ignore[arg-type]
    mean = estimate_mean(sums, coefficient.bounds, confidence)
    if mean is None or mean.low is None:
        return found
    return replace(found, se=mean.se, low=mean.low, high=mean.high, confidence=confidence, interval=mean.method)


def sum_by_item(clusters: Clusters, times: Floats, values: Floats) -> ClusterSums:
    """Return the sums of the units' values, over all units and over items. Each value counts `times` units."""
    n = float(times.sum())
    origin = float(np.round(times @ values / n)) if n else 0.0
    values = values - origin
    totals, sizes, alike = clusters.totals(values), clusters.sizes, clusters.alike
    over_items = alike @ totals**2, alike @ (totals * sizes), alike @ sizes**2
    unit_values = n, float(times @ values), float(times @ values**2)
    return ClusterSums(*[*unit_values, clusters.n, *map(float, over_items), origin])


def _add_jackknife_interval(
    found: Estimate, coefficient: Coefficient, clusters: Clusters, confidence: float
) -> Estimate:
    """Return the estimate with Student's interval, from the values without one item each."""
    used = clusters.sizes > 0
    alike = clusters.alike * used
    without = coefficient.compute(clusters.times((alike[None, :] - np.eye(len(alike)))[used]))
    n, times, estimate = found.clusters, alike[used], found.estimate or 0.0
    least, most = coefficient.bounds
    if np.isnan(without).any():
        return replace(found, interval=NO_JACKKNIFE)
    if np.ptp(without) <= ALIKE * max(1.0, float(np.abs(without).max())):
        return replace(found, interval=NO_SPREAD)
    if most == 1 and without.max() > 1 - ALIKE:
        return replace(found, interval=ONE_DISAGREES)
    is_z = most == 1 and min(estimate, float(without.min())) > ALIKE - 1
    values, center = (np.arctanh(without), np.arctanh(estimate)) if is_z else (without, estimate)
    spread = (n - 1) / n * float(times @ (values - np.average(values, weights=times)) ** 2)
    ends = center + student_quantile(confidence, n - 1) * np.sqrt(spread) * np.array([-1, 1])
    low, high = np.clip(np.tanh(ends) if is_z else ends, least, most).tolist()
    se = np.sqrt(spread) * (1 - estimate**2 if is_z else 1)
    how = f"jackknife of {n:,} items, Student's t" + (" of Fisher's z" if is_z else "")
    return replace(found, se=float(se), low=low, high=high, confidence=confidence, interval=how)


def add_percentile_interval(estimate: Estimate, drawn: Floats, confidence: float) -> Estimate:
    """Return the estimate with the interval that holds the middle of the drawn values (NaN: not defined)."""
    defined = drawn[~np.isnan(drawn)]
    estimate = replace(estimate, degenerate=len(drawn) - len(defined))
    if estimate.degenerate > MOST_DEGENERATE * len(drawn):
        return estimate
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    if np.ptp(defined) <= ALIKE * max(1.0, float(np.abs(defined).max())):
        return replace(estimate, interval=NO_SPREAD)
    se = float(defined.std(ddof=1))
    how = f"percentile bootstrap of {estimate.clusters:,} items"
    return replace(estimate, se=se, low=float(low), high=float(high), confidence=confidence, interval=how)


@dataclass(frozen=True, eq=False)
class Clusters:
    """The items that the units belong to. Items with the same ratings form one kind.

    alike: (kinds,), the number of items of each kind.
    codes: (units,), the kind of each unit's item; None if rows stand for many units.
    held: (kinds, units), the number of units of each row in an item of the kind; None if each row is one unit.
    """

    alike: Floats
    codes: Whole | None
    held: Floats | None

    def totals(self, values: Floats) -> Floats:
        """Return the sums of values over each item's units: (units,) -> (kinds,)."""
        if self.held is not None:
            return self.held @ values
        totals: Floats = np.bincount(self.codes, values, minlength=len(self.alike)).astype(np.float64)  # type: ignore[arg-type]
        return totals

    @property
    def sizes(self) -> Floats:
        """The number of units of an item of each kind: (kinds,)."""
        units = self.codes if self.held is None else self.held.T
        return self.totals(np.ones(len(units)))  # type: ignore[arg-type]

    @property
    def n(self) -> int:
        """The number of items that have units."""
        return round(float(self.alike[self.sizes > 0].sum()))

    def select_units(self, chosen: NDArray[np.bool_]) -> Clusters:
        """Return the clusters of these units alone. All kinds stay, also kinds without any unit."""
        codes = None if self.codes is None else self.codes[chosen]
        return Clusters(self.alike, codes, None if self.held is None else self.held[:, chosen])

    def times(self, drawn: Floats) -> Floats:
        """Return how often each unit was drawn: (resamples, kinds) draws of items -> (resamples, units)."""
        found: Floats = drawn[:, self.codes] if self.held is None else drawn @ self.held
        return found


def group_by_item(ratings: Ratings, items: Mapping[Hashable, Hashable] | None) -> Clusters:
    """Return the items of these units. `items` maps a unit to its item; without it each unit is an item.

    Rows that stand for many units hold their items themselves. Raise ValueError for a unit without an item.
    """
    if ratings.row_items is not None:
        held, alike = ratings.row_items.units, ratings.row_items.alike
        some = held.sum(axis=1) > 0
        return Clusters(alike[some], None, held[some])
    codes = _number_items(ratings.units, items)
    return Clusters(np.ones(int(codes.max()) + 1 if codes.size else 0), codes, None)


def _number_items(units: Sequence[Hashable], items: Mapping[Hashable, Hashable] | None) -> Whole:
    """Return the number of each unit's item, from 0: (units,). Raise ValueError for a unit without an item."""
    if items is None:
        return np.arange(len(units))
    lacking = next((unit for unit in units if unit not in items), None)
    if lacking is not None:
        raise ValueError(f"the unit {lacking!r} has no item")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(items[unit], len(numbers)) for unit in units], dtype=np.intp)


def draw_kind_counts(alike: Floats, resamples: int, seed: int, cells: int) -> Iterator[Floats]:
    """Yield how many clusters of each kind were drawn: (some resamples, kinds) at a time.

    alike: (kinds,), the number of interchangeable clusters of each kind. Only the number drawn of a kind matters.
    cells: the number of values of one resample. It bounds how many resamples are made at once.
    """
    step = max(1, CELLS_AT_ONCE // cells)
    if resamples * len(alike) > CELLS_KEPT or alike.max(initial=0) > MOST_KEPT:
        random = np.random.default_rng(seed)
        for start in range(0, resamples, step):
            yield _draw(random, alike, min(step, resamples - start)).astype(np.float64)
        return
    drawn = _kept_draws(alike.tobytes(), resamples, seed)
    for start in range(0, resamples, step):
        yield drawn[start : start + step].astype(np.float64)


def _draw(random: np.random.Generator, alike: Floats, resamples: int) -> NDArray[np.int64]:
    n = int(alike.sum())
    return random.multinomial(n, alike / n, size=resamples)


@lru_cache(maxsize=2)
def _kept_draws(alike: bytes, resamples: int, seed: int) -> NDArray[np.uint16]:
    """Return all draws. A hundred conditions over the same items have the same draws, which take most of the time."""
    return _draw(np.random.default_rng(seed), np.frombuffer(alike), resamples).astype(np.uint16)
