"""The formula, the source and the meaning of each measure of agreement, as the pages show them."""

from __future__ import annotations

from typing import NamedTuple


class MeasureDescription(NamedTuple):
    """The texts about one measure. uses: the units that it can use."""

    formula: str
    citation: str
    meaning: str
    uses: str = "those that every rater rated, since the formula takes no gaps; alpha uses the others, too"


COHEN = "1 − observed / expected disagreement; expected from each rater's own shares"
ALPHA = "1 − D_o / D_e: disagreement within units over that of all ratings, whatever they rate"
KRIPPENDORFF = "K. Krippendorff (2011), Computing Krippendorff's alpha-reliability"
SHROUT = "P. E. Shrout & J. L. Fleiss (1979), Psychological Bulletin 86, 420–428; K. O. McGraw & S. P. Wong (1996)"
FLEISS = "1 − observed / expected disagreement; expected from the shares of all raters together"
GWET = "J. L. Fleiss (1971), Psychological Bulletin 76, 378–382; K. L. Gwet (2014), Handbook of inter-rater reliability"
PAIRED = "those with two ratings or more, whoever gave them"
RATED = "all that anybody rated; one with a single rating tells of the shares alone"
SINGLE, MEAN = "of a single rating", "of the mean of all k raters"

MEASURE_DESCRIPTIONS: dict[str, MeasureDescription] = {
    "Percent agreement": MeasureDescription(
        "mean over units of the share of agreeing pairs of ratings",
        "J. L. Fleiss (1971), Psychological Bulletin 76, 378–382",
        "Chance is not removed: two raters who always say 7 agree by 100 %.", PAIRED,
    ),
    "Cohen's kappa": MeasureDescription(
        COHEN + ", any two categories being equally far",
        "J. Cohen (1960), Educational and Psychological Measurement 20, 37–46",
        "For two raters and categories without an order.",
    ),
    "Cohen's kappa, linear weights": MeasureDescription(
        COHEN + ", by the distance of the ratings", "J. Cohen (1968), Psychological Bulletin 70, 213–220",
        "For two raters on points in order.",
    ),
    "Cohen's kappa, quadratic weights": MeasureDescription(
        COHEN + ", by the squared distance of the ratings", "J. Cohen (1968), Psychological Bulletin 70, 213–220",
        "For two raters on points in order; near to an intraclass correlation.",
    ),
    "Lin's concordance": MeasureDescription(
        "2 s_xy / (s_x² + s_y² + (mean x − mean y)²)", "L. I.-K. Lin (1989), Biometrics 45, 255–268",
        "How near the pairs are to the line of equality: order and level together.",
    ),
    "Fleiss' kappa": MeasureDescription(
        FLEISS + "; any two categories being equally far", GWET,
        "For names without an order, by raters who may differ from unit to unit.", RATED,
    ),
    "Fleiss' kappa, linear weights": MeasureDescription(
        FLEISS + "; by the distance of the ratings", GWET,
        "For points in order, by raters who may differ from unit to unit.", RATED,
    ),
    "Fleiss' kappa, quadratic weights": MeasureDescription(
        FLEISS + "; by the squared distance of the ratings", GWET,
        "The same; near to interval alpha, which corrects it for few ratings.", RATED,
    ),
    "Krippendorff's alpha, nominal": MeasureDescription(
        ALPHA + "; any two different ratings are equally far", KRIPPENDORFF,
        "For names without an order. Missing ratings are allowed.", PAIRED,
    ),
    "Krippendorff's alpha, ordinal": MeasureDescription(
        ALPHA + "; distances by the ranks between them", KRIPPENDORFF,
        "For points in order. Missing ratings are allowed.", PAIRED,
    ),
    "Krippendorff's alpha, interval": MeasureDescription(
        ALPHA + "; distances are squared differences", KRIPPENDORFF,
        "For numbers with equal steps. Missing ratings are allowed.", PAIRED,
    ),
    "Krippendorff's alpha, ratio": MeasureDescription(
        ALPHA + "; distances are squared differences over sums", KRIPPENDORFF,
        "For amounts with a true zero. Missing ratings are allowed.", PAIRED,
    ),
    "ICC(1,1)": MeasureDescription(
        "(R − W) / (R + (k − 1) W)", SHROUT, f"Each unit has raters of its own; {SINGLE}.",
    ),
    "ICC(2,1)": MeasureDescription(
        "(R − E) / (R + (k − 1) E + k (C − E) / n)", SHROUT,
        f"Raters stand for others, and their level counts; {SINGLE}.",
    ),
    "ICC(3,1)": MeasureDescription(
        "(R − E) / (R + (k − 1) E)", SHROUT, f"These raters alone, consistency; {SINGLE}.",
    ),
    "ICC(1,k)": MeasureDescription(
        "(R − W) / R", SHROUT, f"Each unit has raters of its own; {MEAN}.",
    ),
    "ICC(2,k)": MeasureDescription(
        "(R − E) / (R + (C − E) / n)", SHROUT, f"Raters stand for others, and their level counts; {MEAN}.",
    ),
    "ICC(3,k)": MeasureDescription(
        "(R − E) / R", SHROUT, f"These raters alone, consistency; {MEAN}.",
    ),
    "Kendall's W": MeasureDescription(
        "12 S / (m² (n³ − n) − m T), with mid-ranks for ties", "M. G. Kendall (1948), Rank correlation methods, ch. 6",
        "Whether all raters put the units into the same order, 0 to 1.",
    ),
}  # fmt: skip
