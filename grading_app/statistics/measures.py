"""What a measure of agreement is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grading_app.statistics.estimates import Estimate, Spread
from grading_app.statistics.ratings import Floats, Ratings


@dataclass(frozen=True, eq=False)
class Coefficient:
    """A measure of agreement, ready to be computed for these ratings and for any resample of their units.

    ratings: those that the measure can use; left_out: how many units it cannot.
    of: (resamples, units), how often each unit counts -> (resamples,), the measure; NaN where it is not defined.
        `ratings.times` is the sample itself; this one function serves the estimate and the bootstrap.
    spread: the interval by formula at a confidence, where there is one; None where these ratings give none.
    """

    formula: str
    ratings: Ratings
    left_out: int
    of: Callable[[Floats], Floats]
    spread: Callable[[float], Spread | None] | None = None

    @property
    def estimate(self) -> float | None:
        """The measure of the sample; None where it is not defined (no units, or no variation at all)."""
        value = float(self.of(self.ratings.times[None])[0]) if self.ratings.units else np.nan
        return None if np.isnan(value) else value

    def result(self, confidence: float = 0.95) -> Estimate:
        """The estimate, with its interval by formula where there is one (`bootstrap` gives one to every measure)."""
        estimate = self.estimate
        spread = self.spread(confidence) if self.spread and estimate is not None else None
        counts = (self.ratings.n_units, self.ratings.n_raters, self.ratings.n_ratings, self.left_out)
        if spread is None:
            return Estimate(self.formula, estimate, *counts)
        return Estimate(self.formula, estimate, *counts, spread.se, spread.low, spread.high, confidence, spread.how)


def quotient(above: Floats, below: Floats) -> Floats:
    """above / below, and NaN (not a warning) wherever below is not above zero."""
    found: Floats = np.divide(above, below, out=np.full(np.shape(below), np.nan), where=below > 0)
    return found
