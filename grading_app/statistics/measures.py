"""The common interface of all measures of agreement."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grading_app.statistics.estimates import AgreementEstimate, Spread
from grading_app.statistics.ratings import Floats, Ratings


@dataclass(frozen=True, eq=False)
class Coefficient:
    """A measure of agreement that can be computed for a table of ratings and for any resample of its units.

    ratings: the ratings that the measure can use.
    left_out: the number of units that the measure cannot use.
    compute: map weights (resamples, units) to values (resamples,). A weight is the number of draws of a unit. Undefined
    values are NaN. The weights `ratings.times` give the estimate, so one function serves estimate and bootstrap.
    spread: return the interval by formula for a confidence, or None if these ratings have no interval. None if there is
    no formula.
    bounds: the lowest and the highest possible value. Intervals stay within them.
    unit_values: (units,), the values whose mean over units is the measure; None if it is not such a mean.
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
        """The measure of the sample; None if it is undefined (no units, or no variance)."""
        value = float(self.compute(self.ratings.times[None])[0]) if self.ratings.units else np.nan
        return None if np.isnan(value) else value

    def result(self, confidence: float = 0.95) -> AgreementEstimate:
        """Return the estimate, with its interval by formula if there is one.

        `bootstrap` gives an interval for any measure.
        """
        estimate = self.estimate
        spread = self.spread(confidence) if self.spread and estimate is not None else None
        counts = (self.ratings.n_units, self.ratings.n_raters, self.ratings.n_ratings, self.left_out)
        if spread is None:
            return AgreementEstimate(self.formula, estimate, *counts)
        return AgreementEstimate(
            self.formula, estimate, *counts, spread.se, spread.low, spread.high, confidence, spread.method
        )


def divide(numerator: Floats, denominator: Floats) -> Floats:
    """Return numerator / denominator; NaN, without a warning, if the denominator is not positive."""
    quotients: Floats = np.divide(
        numerator, denominator, out=np.full(np.shape(denominator), np.nan), where=denominator > 0
    )
    return quotients
