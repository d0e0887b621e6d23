"""The results of measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class AgreementEstimate:
    """An estimate with its counts and its interval.

    formula: the measure's name, with its variant.
    estimate: None if it is undefined for these ratings.
    se, low, high: None without an interval. interval: the method of the interval, or the reason why there is none.
    units, raters, ratings: the numbers used. left_out: the number of units that could not be used.
    clusters, resamples, degenerate: for a bootstrap, the number of clusters, of resamples, and of resamples for which
    the measure is undefined.
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
    """An interval by formula: the standard error if there is one, both ends, and the method."""

    se: float | None
    low: float
    high: float
    method: str
