"""Estimates with their intervals: the mean or share of scores, results of measures, and notes on low coverage.

`estimate_mean` chooses the method by the scores and their scale. Callers show `method`, or `reason` if there is no
interval. The coverage of some intervals is low in simulations: below 93 %, or below 94 % from 40 items on.
`docs/statistics.md` describes the simulation. Pages show a note once below each table with such an interval.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evalsite.lib.stats import student_quantile
from grading_app.statistics.clusters import ClusterSums, clustered_mean, clustered_share
from grading_app.statistics.paired import FLIP_INTERVAL, STUDENT_INTERVAL, TANGO_INTERVAL, PairedChange

Bounds = tuple[float, float]
STUDENT = "Student's t over"  # The start of the method of a mean without a scale.
ONE_ITEM = "an interval needs at least two items"
NO_SPREAD = "all items have the same mean, so their spread is unknown"
SHARE_BOUNDS: Bounds = (0.0, 1.0)
ITEMS_AT_EACH_END = 1.0  # The number of items at each end of the scale that a score interval adds to the real items.
SHARE = "share of answers asked once"
ODD_R, ODD_CHANGE, RMSE = "r with odd items", "change with odd items", "RMSE"
CHANGE_ONCE, CHANGE_REPEATED = "change of a share of items asked once", "change of a share of repeated items"
CHANGES = {
    ODD_CHANGE: "If one item in twenty changes far more than the others",
    CHANGE_ONCE: "For some shares of items that change",
    CHANGE_REPEATED: "If a few items change in all repetitions",
}
UNEVEN = "share of items with different numbers of answers"
SKEWED = "mean of skewed scores without a scale"
ODDS = "odds ratio of a factor"
# The start of a measure's name, the range of numbers of items with low coverage (from, below), and the lowest simulated
# coverage in this range, in per cent.
LOW_COVERAGE = (
    (SHARE, 2, 10, 87),
    (SHARE, 10, 60, 91),
    (SHARE, 60, 1000, 93),
    (CHANGE_ONCE, 100, 1000, 93),
    (CHANGE_REPEATED, 17, 30, 91),
    (ODD_R, 2, 60, 55),
    (ODD_R, 60, 150, 69),
    (ODD_R, 150, 250, 92),
    (ODD_CHANGE, 2, 30, 66),
    (ODD_CHANGE, 30, 150, 85),
    (ODD_CHANGE, 150, 300, 92),
    (UNEVEN, 2, 500, 85),
    (SKEWED, 2, 15, 73),
    (SKEWED, 15, 30, 76),
    (SKEWED, 30, 100, 77),
    (SKEWED, 100, 500, 88),
    (ODDS, 2, 500, 92),
    # Of categories, if one category is rare: one label in ten.
    ("Krippendorff's alpha, nominal", 2, 15, 40),
    ("Krippendorff's alpha, nominal", 15, 30, 56),
    ("Krippendorff's alpha, nominal", 30, 60, 77),
    ("Krippendorff's alpha, nominal", 60, 80, 91),
    ("Krippendorff's alpha, nominal", 80, 100, 93),
    ("Cohen's kappa, ", 2, 40, 91),  # With weights.
    ("Cohen's kappa, ", 40, 60, 93),
    ("Fleiss' kappa, ", 2, 40, 90),
    ("Cohen's kappa", 2, 15, 40),
    ("Cohen's kappa", 15, 30, 67),
    ("Cohen's kappa", 30, 60, 87),
    ("Cohen's kappa", 60, 80, 92),
    ("Fleiss' kappa", 2, 15, 33),
    ("Fleiss' kappa", 15, 30, 60),
    ("Fleiss' kappa", 30, 60, 79),
    ("Fleiss' kappa", 60, 80, 91),
    ("Fleiss' kappa", 80, 100, 93),
    ("Krippendorff's alpha", 2, 30, 91),
    ("Lin's concordance", 2, 20, 92),
    ("ICC(2,1)", 2, 20, 92),
    (RMSE, 2, 20, 92),
    ("share by the people", 60, 150, 93),
    ("mean of the people", 30, 60, 93),
    ("judge: Lin's concordance", 2, 40, 91),
    ("people: Lin's concordance", 2, 40, 91),
    ("judge less people: Lin's concordance", 2, 40, 91),
    ("lower limit of agreement", 2, 30, 90),
    ("lower limit of agreement", 30, 100, 93),
    ("upper limit of agreement", 2, 30, 90),
    ("upper limit of agreement", 30, 100, 93),
)
OF_CATEGORIES = ("Krippendorff's alpha, nominal", "Cohen's kappa", "Fleiss' kappa")


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


@dataclass(frozen=True, slots=True)
class ScoreEstimate:
    """A mean of scores, or a share if every score is 0 or 1, with its interval.

    n, clusters: the numbers of scores and of items. sd: the sample standard deviation (n - 1); None for one score.
    se: clustered by item. low, high: None without an interval; then `method` is empty and `reason` says why.
    effective_n: for a share, the number of independent answers with the same variance.
    """

    n: int
    clusters: int
    mean: float
    is_share: bool
    sd: float | None = None
    se: float | None = None
    low: float | None = None
    high: float | None = None
    method: str = ""
    reason: str = ""
    effective_n: float | None = None


def estimate_mean(sums: ClusterSums, bounds: Bounds | None = None, confidence: float = 0.95) -> ScoreEstimate | None:
    """Return the mean of clustered scores with the interval that suits them; None for no scores.

    bounds: the ends of the scale; None if the scale is unbounded or unknown.
    - If all scores are 0 or 1 and the bounds are SHARE_BOUNDS: a share, with Wilson's interval at the effective n.
      Callers decide by `is_share_scale`, over all conditions of a measure.
    - For scores within bounds: `bounded_score_interval`. It never leaves the scale and never has zero width.
    - For other scores, or a mean outside the bounds: Student's interval, with a standard error clustered by item. There
      is no interval if all items have the same mean.
    """
    if not sums.n:
        return None
    if bounds is not None and tuple(map(float, bounds)) == SHARE_BOUNDS and has_only_zero_and_one(sums):
        return _estimate_share(sums, confidence)
    mean = clustered_mean(sums, confidence)
    if mean is None:
        return None
    common = {"n": mean.n, "clusters": mean.clusters, "mean": mean.mean, "is_share": False, "sd": sums.sd}
    if mean.se is None:
        return ScoreEstimate(**common, reason=ONE_ITEM)  # type: ignore[arg-type]
    if bounds is not None and bounds[0] <= mean.mean <= bounds[1]:
        low, high = bounded_score_interval(mean.mean, mean.se, mean.clusters, bounds, confidence)
        method = f"score interval within the scale, Student's t over {mean.clusters:,} items"
    elif mean.se and mean.low is not None and mean.high is not None:
        low, high = mean.low, mean.high
        method = f"{STUDENT} {mean.clusters:,} items"
    else:
        return ScoreEstimate(**common, se=0.0, reason=NO_SPREAD)  # type: ignore[arg-type]
    return ScoreEstimate(**common, se=mean.se, low=low, high=high, method=method)  # type: ignore[arg-type]


def is_share_scale(is_binary: bool, bounds: Bounds | None) -> bool:
    """Return True if means of a measure are shares: all scores are 0 or 1, on a scale from 0 to 1 or an unknown one.

    On a scale from 0 to 10, a score of 1 is not right, and a mean of .5 is not 50 %.
    """
    return is_binary and (bounds is None or tuple(map(float, bounds)) == SHARE_BOUNDS)


def has_only_zero_and_one(sums: ClusterSums) -> bool:
    if not sums.n or not -1e-9 <= sums.mean <= 1 + 1e-9:
        return False
    # For scores x from 0 to 1, the sum of x - x^2 is zero only if each x is 0 or 1.
    plain = sums.about(0.0)
    return abs(plain.squares - plain.total) <= 1e-9 * max(1.0, plain.n)


def bounded_score_interval(
    mean: float, se: float, clusters: int, bounds: Bounds, confidence: float = 0.95
) -> tuple[float, float]:
    """Return a score interval of a mean on a scale from L to H, from its clustered standard error.

    On the scale from 0 to 1, it is Wilson's interval of the share p = (mean - L) / (H - L) of n answers, with Student's
    t of clusters - 1 degrees of freedom in place of z. n is the number of answers of 0 or 1 whose share has the same
    standard error. For scores of 0 and 1, this is the interval of Korn & Graubard (1998) with Wilson's in place of
    theirs. Scores between the ends vary less than 0 and 1, so n is larger.
    The standard error includes ITEMS_AT_EACH_END items at each end of the scale, as D. G. Bonett & R. M. Price (2012)
    do for paired shares (Journal of Educational and Behavioral Statistics 37, 479-488). So it is never zero, because
    items with equal scores so far may still differ later.
    Raise ValueError unless L <= mean <= H, se >= 0 and clusters > 1.
    """
    low, high = bounds
    span = high - low
    if not (span > 0 and low - 1e-9 * span <= mean <= high + 1e-9 * span and se >= 0 and clusters > 1):
        raise ValueError(f"no interval: mean {mean} and error {se} of {clusters} items, scale {low} to {high}")
    p = min(1.0, max(0.0, (mean - low) / span))
    n_items = clusters + 2 * ITEMS_AT_EACH_END
    shrunk = (clusters * p + ITEMS_AT_EACH_END) / n_items
    squares = clusters * (clusters - 1) * (se / span) ** 2 + clusters * (p - shrunk) ** 2
    squares += ITEMS_AT_EACH_END * (shrunk**2 + (1 - shrunk) ** 2)
    n = clusters * n_items * shrunk * (1 - shrunk) / squares
    # Center and half-width of the score interval of a share p of n answers, with quantile t.
    t = student_quantile(confidence, clusters - 1)
    shrink = 1 + t * t / n
    center, margin = (p + t * t / (2 * n)) / shrink, t * math.sqrt(p * (1 - p) / n + t * t / (4 * n * n)) / shrink
    return low + span * max(0.0, center - margin), low + span * min(1.0, center + margin)


def _estimate_share(sums: ClusterSums, confidence: float) -> ScoreEstimate | None:
    share = clustered_share(sums, confidence)
    if share is None:
        return None
    counts = (share.n, share.clusters, share.share, True, sums.sd, share.se)
    if share.low is None or share.high is None or share.effective_n is None:
        return ScoreEstimate(*counts, reason=ONE_ITEM)
    effective_text = "" if round(share.effective_n) == share.n else f" at an effective n of {share.effective_n:,.0f}"
    return ScoreEstimate(*counts, share.low, share.high, f"modified Wilson{effective_text}", "", share.effective_n)


def sum_clusters(values: Sequence[float], clusters: Iterable[Hashable] | None = None) -> ClusterSums:
    """Return the sums of these scores. clusters: the item of each score; by default, each score is its own item.

    Raise ValueError if there are more or fewer items than scores.
    """
    origin = float(round(math.fsum(values) / len(values))) if values else 0.0
    items: dict[Hashable, list[float]] = {}
    for value, item in zip(values, clusters if clusters is not None else range(len(values)), strict=True):
        items.setdefault(item, []).append(value - origin)
    groups = [(len(scores), math.fsum(scores)) for scores in items.values()]
    return ClusterSums(
        n=float(len(values)),
        total=math.fsum(total for _, total in groups),
        squares=math.fsum(value * value for scores in items.values() for value in scores),
        clusters=float(len(groups)),
        totals_squared=math.fsum(total * total for _, total in groups),
        sizes_by_totals=math.fsum(n * total for n, total in groups),
        sizes_squared=float(sum(n * n for n, _ in groups)),
        origin=origin,
    )


def describe_coverage(name: str, items: int) -> str:
    """Return a text such as 'covers about 92 % ...'; "" if intervals of this measure cover enough."""
    measure = max((prefix for prefix, *_ in LOW_COVERAGE if name.startswith(prefix)), key=len, default="")
    for prefix, low, high, per_cent in LOW_COVERAGE:
        if prefix == measure and low <= items < high:
            condition = ", if one category is rare" if prefix in OF_CATEGORIES else ""
            return f"covers about {per_cent} % instead of 95 % in simulations of about as many items{condition}"
    return ""


def describe_estimates_coverage(estimates: Iterable[tuple[str, AgreementEstimate | None]]) -> str:
    """Return a sentence on the named estimates of one table whose intervals have low coverage; "" if none has."""
    names: dict[str, list[str]] = {}
    for name, one in estimates:
        if one and one.low is not None and (note := describe_coverage(one.formula, one.clusters)):
            names.setdefault(note, []).append(name)
    return " ".join(f"The interval of {', '.join(those)} {note}." for note, those in names.items())


def describe_share_coverage(items: Iterable[int]) -> str:
    """Return a sentence on shares over these numbers of items with one answer each; "" for enough items."""
    note = describe_coverage(SHARE, min(items, default=0))
    return f"The interval of a share of items asked once {note}, for some shares." if note else ""


def describe_uneven_coverage(counts: Iterable[tuple[int, int]]) -> str:
    """Return a sentence on shares with these numbers of (answers, items); "" if all items have as many answers."""
    note = describe_coverage(UNEVEN, min((items for n, items in counts if items and n % items), default=0))
    return f"If hard items have more answers than easy ones, the interval of a share {note}." if note else ""


def describe_skew_coverage(items: Iterable[int]) -> str:
    """Return a sentence on means without a scale over these numbers of items; "" for enough items."""
    note = describe_coverage(SKEWED, min(items, default=0))
    return f"If scores are strongly skewed, with a few far above all others, Student's interval {note}." if note else ""


def describe_odds_coverage(items: int) -> str:
    """Return a sentence on odds ratios of a mixed model over this number of items; "" for enough items."""
    note = describe_coverage(ODDS, items)
    return f"The interval of an odds ratio {note}, for some designs." if note else ""


def describe_correlation_coverage(items: Iterable[int]) -> str:
    """Return a sentence on correlations over these numbers of items; "" for enough items, and without correlations."""
    note = describe_coverage(ODD_R, min(items, default=0))
    return f"If one item in fifty is rated far off, the interval of r {note}." if note else ""


def describe_change_coverage(changes: Iterable[PairedChange], *, is_share: bool) -> str:
    """Return sentences on the intervals of mean differences of shares, or of ratings; "" for enough items."""
    names = {TANGO_INTERVAL: CHANGE_ONCE, STUDENT_INTERVAL: CHANGE_REPEATED}
    if not is_share:
        names = dict.fromkeys((STUDENT_INTERVAL, FLIP_INTERVAL), ODD_CHANGE)
    fewest: dict[str, int] = {}
    for change in changes:
        if name := names.get(change.method):
            fewest[name] = min(change.n, fewest.get(name, change.n))
    notes = {name: describe_coverage(name, items) for name, items in fewest.items()}
    return " ".join(f"{CHANGES[name]}, the interval of a difference {note}." for name, note in notes.items() if note)
