"""The formula, the source and the meaning of each measure of agreement, as the pages show them."""

from __future__ import annotations

from typing import NamedTuple


class MeasureDescription(NamedTuple):
    """The texts about one measure. uses: the units that the measure can use."""

    formula: str
    citation: str
    meaning: str
    uses: str = "those that every rater rated, because the formula allows no gaps; alpha also uses the others"


COHEN = "1 − observed / expected disagreement; expected from each rater's own shares"
ALPHA = "1 − D_o / D_e: disagreement within units over disagreement among all ratings of all units"
KRIPPENDORFF = "K. Krippendorff (2011), Computing Krippendorff's alpha-reliability"
SHROUT = "P. E. Shrout & J. L. Fleiss (1979), Psychological Bulletin 86, 420–428; K. O. McGraw & S. P. Wong (1996)"
FLEISS = "1 − observed / expected disagreement; expected from the shares of all raters together"
GWET = "J. L. Fleiss (1971), Psychological Bulletin 76, 378–382; K. L. Gwet (2014), Handbook of inter-rater reliability"
PAIRED = "those with at least two ratings, by any raters"
RATED = "all rated units; a unit with a single rating enters only the shares"
SINGLE, MEAN = "of a single rating", "of the mean of all k raters"

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
