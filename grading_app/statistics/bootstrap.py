"""Bootstrap intervals for any measure of agreement.

Whole items are drawn, because answers to one item are correlated.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evalsite.lib.stats.t_interval import student_quantile
from grading_app.statistics.estimates import Estimate
from grading_app.statistics.known_coverage import coverage_note
from grading_app.statistics.measures import Coefficient
from grading_app.statistics.ratings import Floats, Ratings, Whole

MOST_DEGENERATE = 0.1
# Over 5, 8, 20 or 40 items, a 95 % percentile interval of alpha covers 75, 82, 87 or 91 %, because resamples vary less
# than samples. Below this number of items `bootstrap` uses the jackknife (`docs/statistics.md`).
FEW_ITEMS = 200
TOO_NARROW = 30  # Percentiles of fewer items than this are too narrow, where there is no jackknife.
NO_SPREAD = "no interval: every resample of items gives the same value"
NO_JACKKNIFE = "no interval: without one of the items the measure is not defined"
ALIKE = 1e-9  # Values that differ by less are equal but for rounding error.
CELLS_AT_ONCE = 2_000_000  # of resamples x ratings: bounds the memory of a step to tens of megabytes


def bootstrap(
    coefficient: Coefficient,
    *,
    seed: int,
    items: Mapping[Hashable, Hashable] | None = None,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Estimate:
    """Return the measure with its percentile interval over resamples of items. The same seed gives the same interval.

    items: unit -> item, if an item has several units (its answers). Items are drawn with replacement, with all their
    units. Without it each unit is an item.
    Resamples for which the measure is not defined (one category alone) are left out and counted. If they are more than
    a tenth, there is no interval, because leaving them out would bias it.
    Below FEW_ITEMS items the interval is Student's with the jackknife's standard error, because percentiles of so few
    items are too narrow: R. G. Miller (1974), "The jackknife - a review", Biometrika 61, 1-15.
    If all ratings agree, they agree in every resample. Then there is no interval, because other items may differ.
    B. Efron & R. J. Tibshirani (1993), "An introduction to the bootstrap", ch. 13; resampling whole clusters: A. C.
    Davison & D. V. Hinkley (1997), "Bootstrap methods and their application", section 3.8.
    Raise ValueError for fewer than 100 resamples, a confidence outside 0 to 1, or a unit without an item.
    """
    if resamples < 100 or not 0 < confidence < 1:
        raise ValueError("a bootstrap takes 100 resamples or more, and a confidence between 0 and 1")
    plain, clusters = replace(coefficient, spread=None).result(), clusters_of(coefficient.ratings, items)
    told = replace(plain, clusters=clusters.n, resamples=resamples)
    if told.clusters < 2 or plain.estimate is None:
        return replace(told, resamples=0)
    cells = max(coefficient.ratings.values.size, len(clusters.alike))
    steps = draws_of_kinds(clusters.alike, resamples, seed, cells)
    drawn = np.concatenate([coefficient.of(clusters.times(times)) for times in steps])
    found = with_percentiles(told, drawn, confidence)
    if found.low is not None and told.clusters < FEW_ITEMS:
        found = _with_jackknife(found, coefficient, clusters, confidence)
    note = coverage_note(found.formula, found.clusters)
    return replace(found, interval=f"{found.interval}; {note}") if note and found.low is not None else found


def _with_jackknife(told: Estimate, coefficient: Coefficient, clusters: Clusters, confidence: float) -> Estimate:
    """Return the estimate with Student's interval, from the values without one item each."""
    used = clusters.sizes > 0
    alike = clusters.alike * used
    without = coefficient.of(clusters.times((alike[None, :] - np.eye(len(alike)))[used]))
    n, times = told.clusters, alike[used]
    spread = float(times @ (without - np.average(without, weights=times)) ** 2)
    if not np.isfinite(spread) or told.estimate is None:
        return replace(told, se=None, low=None, high=None, confidence=None, interval=NO_JACKKNIFE)
    se = float(np.sqrt((n - 1) / n * spread))
    reach, (least, most) = student_quantile(confidence, n - 1) * se, coefficient.bounds
    low, high = max(least, told.estimate - reach), min(most, told.estimate + reach)
    return replace(told, se=se, low=low, high=high, interval=f"jackknife of {n:,} items, Student's t")


def with_percentiles(told: Estimate, drawn: Floats, confidence: float) -> Estimate:
    """Return the estimate with the interval that holds the middle of the drawn values (NaN: not defined)."""
    defined = drawn[~np.isnan(drawn)]
    told = replace(told, degenerate=len(drawn) - len(defined))
    if told.degenerate > MOST_DEGENERATE * len(drawn):
        return told
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    if np.ptp(defined) <= ALIKE * max(1.0, float(np.abs(defined).max())):
        return replace(told, interval=NO_SPREAD)
    se = float(defined.std(ddof=1))
    how = told_of_interval(told.clusters)
    return replace(told, se=se, low=float(low), high=float(high), confidence=confidence, interval=how)


def told_of_interval(items: int) -> str:
    """Describe how an interval was made. For few items, add that it is too narrow."""
    few = f", too narrow of fewer than {TOO_NARROW}" if items < TOO_NARROW else ""
    return f"percentile bootstrap of {items:,} items{few}"


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

    def where(self, kept: NDArray[np.bool_]) -> Clusters:
        """Return the clusters of these units alone. All kinds stay, also kinds without any unit."""
        codes = None if self.codes is None else self.codes[kept]
        return Clusters(self.alike, codes, None if self.held is None else self.held[:, kept])

    def times(self, drawn: Floats) -> Floats:
        """Return how often each unit was drawn: (resamples, kinds) draws of items -> (resamples, units)."""
        found: Floats = drawn[:, self.codes] if self.held is None else drawn @ self.held
        return found


def clusters_of(ratings: Ratings, items: Mapping[Hashable, Hashable] | None) -> Clusters:
    """Return the items of these units. `items` maps a unit to its item; without it each unit is an item.

    Rows that stand for many units hold their items themselves. Raise ValueError for a unit without an item.
    """
    if ratings.holding is not None:
        held, alike = ratings.holding.units, ratings.holding.alike
        some = held.sum(axis=1) > 0
        return Clusters(alike[some], None, held[some])
    codes = _codes(ratings.units, items)
    return Clusters(np.ones(int(codes.max()) + 1 if codes.size else 0), codes, None)


def _codes(units: Sequence[Hashable], items: Mapping[Hashable, Hashable] | None) -> Whole:
    """Return the number of each unit's item, from 0: (units,). Raise ValueError for a unit without an item."""
    if items is None:
        return np.arange(len(units))
    lacking = next((unit for unit in units if unit not in items), None)
    if lacking is not None:
        raise ValueError(f"the unit {lacking!r} has no item")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(items[unit], len(numbers)) for unit in units], dtype=np.intp)


def draws_of_kinds(alike: Floats, resamples: int, seed: int, cells: int) -> Iterator[Floats]:
    """Yield how many clusters of each kind were drawn: (some resamples, kinds) at a time.

    alike: (kinds,), the number of interchangeable clusters of each kind. Only the number drawn of a kind matters.
    cells: the number of values of one resample. It bounds how many resamples are made at once.
    """
    n = int(alike.sum())
    random = np.random.default_rng(seed)
    step = max(1, CELLS_AT_ONCE // cells)
    for start in range(0, resamples, step):
        times = random.multinomial(n, alike / n, size=min(step, resamples - start))
        yield times.astype(np.float64)
