"""What is told of a measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with what a page says beside it.

    formula: the measure's name, with its variant. estimate: None where the ratings do not define it.
    se, low, high: None where there is no interval; `interval` then says nothing, and else how it was made.
    units, raters, ratings: how many entered; left_out: units that could not.
    clusters, resamples, degenerate: of a bootstrap: what was drawn, how often, and how many draws gave no number.
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
    """An interval that comes from a formula: its standard error where it has one, its ends, and how it was made."""

    se: float | None
    low: float
    high: float
    how: str
