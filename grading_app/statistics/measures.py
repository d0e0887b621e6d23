"""The common interface of measures of agreement, and the formula, source and meaning of each as pages show them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from grading_app.statistics.intervals import AgreementEstimate, Spread
from grading_app.statistics.ratings import Floats, Ratings

COHEN = "1 − observed / expected disagreement; expected from each rater's own shares"
ALPHA = "1 − D_o / D_e: disagreement within units over disagreement among all ratings of all units"
KRIPPENDORFF = "K. Krippendorff (2011), Computing Krippendorff's alpha-reliability"
SHROUT = "P. E. Shrout & J. L. Fleiss (1979), Psychological Bulletin 86, 420–428; K. O. McGraw & S. P. Wong (1996)"
FLEISS = "1 − observed / expected disagreement; expected from the shares of all raters together"
GWET = "J. L. Fleiss (1971), Psychological Bulletin 76, 378–382; K. L. Gwet (2014), Handbook of inter-rater reliability"
PAIRED = "those with at least two ratings, by any raters"
RATED = "all rated units; a unit with a single rating enters only the shares"
SINGLE, MEAN = "of a single rating", "of the mean of all k raters"


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


class MeasureDescription(NamedTuple):
    """The texts about one measure. uses: the units that the measure can use."""

    formula: str
    citation: str
    meaning: str
    uses: str = "those that every rater rated, because the formula allows no gaps; alpha also uses the others"


MEASURE_DESCRIPTIONS: dict[str, MeasureDescription] = {
    "Percent agreement": MeasureDescription(
        "mean over units of the share of agreeing pairs of ratings",
        "J. L. Fleiss (1971), Psychological Bulletin 76, 378–382",
        "Not corrected for chance: two raters who always answer 7 agree by 100 %.", PAIRED,
    ),
    "Cohen's kappa": MeasureDescription(
        COHEN + "; all categories are equally distant",
        "J. Cohen (1960), Educational and Psychological Measurement 20, 37–46",
        "For two raters and categories without an order.",
    ),
    "Cohen's kappa, linear weights": MeasureDescription(
        COHEN + "; weighted by the distance of the ratings", "J. Cohen (1968), Psychological Bulletin 70, 213–220",
        "For two raters on points in order.",
    ),
    "Cohen's kappa, quadratic weights": MeasureDescription(
        COHEN + "; weighted by the squared distance of the ratings",
        "J. Cohen (1968), Psychological Bulletin 70, 213–220",
        "For two raters on points in order; close to an intraclass correlation.",
    ),
    "Lin's concordance": MeasureDescription(
        "2 s_xy / (s_x² + s_y² + (mean x − mean y)²)", "L. I.-K. Lin (1989), Biometrics 45, 255–268",
        "How close the pairs are to the line of equality. It measures order and level.",
    ),
    "Fleiss' kappa": MeasureDescription(
        FLEISS + "; all categories are equally distant", GWET,
        "For names without an order, by raters who may differ from unit to unit.", RATED,
    ),
    "Fleiss' kappa, linear weights": MeasureDescription(
        FLEISS + "; weighted by the distance of the ratings", GWET,
        "For points in order, by raters who may differ from unit to unit.", RATED,
    ),
    "Fleiss' kappa, quadratic weights": MeasureDescription(
        FLEISS + "; weighted by the squared distance of the ratings", GWET,
        "For points in order; close to interval alpha, which also corrects for few ratings.", RATED,
    ),
    "Krippendorff's alpha, nominal": MeasureDescription(
        ALPHA + "; all different ratings are equally distant", KRIPPENDORFF,
        "For names without an order. Missing ratings are allowed.", PAIRED,
    ),
    "Krippendorff's alpha, ordinal": MeasureDescription(
        ALPHA + "; distances by the ranks between them", KRIPPENDORFF,
        "For points in order. Missing ratings are allowed.", PAIRED,
    ),
    "Krippendorff's alpha, interval": MeasureDescription(
        ALPHA + "; distances are squared differences", KRIPPENDORFF,
        "For numbers with meaningful differences. Missing ratings are allowed.", PAIRED,
    ),
    "Krippendorff's alpha, ratio": MeasureDescription(
        ALPHA + "; distances are squared differences over sums", KRIPPENDORFF,
        "For quantities with a true zero. Missing ratings are allowed.", PAIRED,
    ),
    "ICC(1,1)": MeasureDescription(
        "(R − W) / (R + (k − 1) W)", SHROUT, f"Each unit has its own raters; {SINGLE}.",
    ),
    "ICC(2,1)": MeasureDescription(
        "(R − E) / (R + (k − 1) E + k (C − E) / n)", SHROUT,
        f"Raters are a sample of all raters, and differences in level count; {SINGLE}.",
    ),
    "ICC(3,1)": MeasureDescription(
        "(R − E) / (R + (k − 1) E)", SHROUT, f"Consistency among these raters only; {SINGLE}.",
    ),
    "ICC(1,k)": MeasureDescription(
        "(R − W) / R", SHROUT, f"Each unit has its own raters; {MEAN}.",
    ),
    "ICC(2,k)": MeasureDescription(
        "(R − E) / (R + (C − E) / n)", SHROUT,
        f"Raters are a sample of all raters, and differences in level count; {MEAN}.",
    ),
    "ICC(3,k)": MeasureDescription(
        "(R − E) / R", SHROUT, f"Consistency among these raters only; {MEAN}.",
    ),
    "Kendall's W": MeasureDescription(
        "12 S / (m² (n³ − n) − m T), with mid-ranks for ties", "M. G. Kendall (1948), Rank correlation methods, ch. 6",
        "Whether all raters rank the units in the same order, from 0 to 1.",
    ),
}  # fmt: skip
