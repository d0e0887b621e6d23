"""The common interface of all measures of agreement."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grading_app.statistics.estimates import Estimate, Spread
from grading_app.statistics.ratings import Floats, Ratings


@dataclass(frozen=True, eq=False)
class Coefficient:
    """A measure of agreement, ready to be computed for a table of ratings and for any resample of its units.

    ratings: the ratings that the measure can use.
    left_out: the number of units that the measure cannot use.
    compute: a function from weights (resamples, units) to values (resamples,). A weight counts how often a unit was
    drawn. The value is NaN where the measure is not defined. With the weights `ratings.times` it computes the sample
    itself, so one function serves the estimate and the bootstrap.
    spread: a function from a confidence to the interval by formula. It is None if the measure has no formula. It
    returns None if these ratings have no interval.
    bounds: the lowest and the highest value that the measure can have. No interval leaves them.
    unit_values: (units,), if the measure is their mean over units, each within the bounds; else None.
    """

    formula: str
    ratings: Ratings
    left_out: int
    compute: Callable[[Floats], Floats]
    spread: Callable[[float], Spread | None] | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)
    unit_values: Floats | None = None

    @property
    def estimate(self) -> float | None:
        """The measure of the sample; None if it is not defined (no units, or no variation at all)."""
        value = float(self.compute(self.ratings.times[None])[0]) if self.ratings.units else np.nan
        return None if np.isnan(value) else value

    def result(self, confidence: float = 0.95) -> Estimate:
        """Return the estimate, with its interval by formula if there is one.

        `bootstrap` gives an interval to any measure.
        """
        estimate = self.estimate
        spread = self.spread(confidence) if self.spread and estimate is not None else None
        counts = (self.ratings.n_units, self.ratings.n_raters, self.ratings.n_ratings, self.left_out)
        if spread is None:
            return Estimate(self.formula, estimate, *counts)
        return Estimate(self.formula, estimate, *counts, spread.se, spread.low, spread.high, confidence, spread.how)


def divide(above: Floats, below: Floats) -> Floats:
    """Return above / below, and NaN (without a warning) wherever `below` is not above zero."""
    found: Floats = np.divide(above, below, out=np.full(np.shape(below), np.nan), where=below > 0)
    return found
