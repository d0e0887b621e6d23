"""The formula, the source and the use of each measure, as the pages show them."""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
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

SOURCES: dict[str, Source] = {
    "Percent agreement": Source(
        "mean over units of the share of agreeing pairs of ratings",
        "J. L. Fleiss (1971), Psychological Bulletin 76, 378–382",
        "Chance is not removed: two raters who always say 7 agree by 100 %.", PAIRED,
    ),
    "Cohen's kappa": Source(COHEN + ", any two categories being equally far", "J. Cohen (1960), Educational and "
                            "Psychological Measurement 20, 37–46", "For two raters and categories without an order."),
    "Cohen's kappa, linear weights": Source(
        COHEN + ", by the distance of the ratings", "J. Cohen (1968), Psychological Bulletin 70, 213–220",
        "For two raters on points in order.",
    ),
    "Cohen's kappa, quadratic weights": Source(
        COHEN + ", by the squared distance of the ratings", "J. Cohen (1968), Psychological Bulletin 70, 213–220",
        "For two raters on points in order; near to an intraclass correlation.",
    ),
    "Lin's concordance": Source(
        "2 s_xy / (s_x² + s_y² + (mean x − mean y)²)", "L. I.-K. Lin (1989), Biometrics 45, 255–268",
        "How near the pairs are to the line of equality: order and level together.",
    ),
    "Fleiss' kappa": Source(FLEISS + "; any two categories being equally far", GWET,
                            "For names without an order, by raters who may differ from unit to unit.", RATED),
    "Fleiss' kappa, linear weights": Source(FLEISS + "; by the distance of the ratings", GWET,
                                            "For points in order, by raters who may differ from unit to unit.", RATED),
    "Fleiss' kappa, quadratic weights": Source(FLEISS + "; by the squared distance of the ratings", GWET,
                                               "The same; near to interval alpha, which corrects it for few ratings.",
                                               RATED),
    "Krippendorff's alpha, nominal": Source(ALPHA + "; any two different ratings are equally far", KRIPPENDORFF,
                                            "For names without an order. Missing ratings are allowed.", PAIRED),
    "Krippendorff's alpha, ordinal": Source(ALPHA + "; distances by the ranks between them", KRIPPENDORFF,
                                            "For points in order. Missing ratings are allowed.", PAIRED),
    "Krippendorff's alpha, interval": Source(ALPHA + "; distances are squared differences", KRIPPENDORFF,
                                             "For numbers with equal steps. Missing ratings are allowed.", PAIRED),
    "Krippendorff's alpha, ratio": Source(ALPHA + "; distances are squared differences over sums", KRIPPENDORFF,
                                          "For amounts with a true zero. Missing ratings are allowed.", PAIRED),
    "ICC(1,1)": Source("(R − W) / (R + (k − 1) W)", SHROUT, f"Each unit has raters of its own; {SINGLE}."),
    "ICC(2,1)": Source("(R − E) / (R + (k − 1) E + k (C − E) / n)", SHROUT,
                       f"Raters stand for others, and their level counts; {SINGLE}."),
    "ICC(3,1)": Source("(R − E) / (R + (k − 1) E)", SHROUT, f"These raters alone, consistency; {SINGLE}."),
    "ICC(1,k)": Source("(R − W) / R", SHROUT, f"Each unit has raters of its own; {MEAN}."),
    "ICC(2,k)": Source("(R − E) / (R + (C − E) / n)", SHROUT,
                       f"Raters stand for others, and their level counts; {MEAN}."),
    "ICC(3,k)": Source("(R − E) / R", SHROUT, f"These raters alone, consistency; {MEAN}."),
    "Kendall's W": Source(
        "12 S / (m² (n³ − n) − m T), with mid-ranks for ties", "M. G. Kendall (1948), Rank correlation methods, ch. 6",
        "Whether all raters put the units into the same order, 0 to 1.",
    ),
}  # fmt: skip
MEAN_SQUARES = (
    "Mean squares of the two-way analysis of variance: R between units, W within units, C between raters, E residual; "
    "k raters, n units."
)


def source_of(name: str) -> Source:
    return SOURCES[name]
