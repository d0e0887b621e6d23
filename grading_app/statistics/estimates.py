"""The results that measures return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate with the counts and the interval that a page shows beside it.

    formula: the measure's name, with its variant.
    estimate: None if the ratings do not define it.
    se, low, high: None if there is no interval. `interval` says how the interval was made; it is empty without one.
    units, raters, ratings: how many were used. left_out: the number of units that could not be used.
    clusters, resamples, degenerate: for a bootstrap, the number of clusters, of resamples, and of resamples that gave
    no number.
    """

    formula: str
    estimate: float | None
    units: int
    raters: int
    ratings: int
    left_out: int = 0
    se: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    interval: str = ""
    clusters: int = 0
    resamples: int = 0
    degenerate: int = 0


class Spread(NamedTuple):
    """An interval from a formula: the standard error if it has one, the two ends, and how it was made."""

    se: float | None
    low: float
    high: float
    how: str
