"""The intervals whose simulated coverage is low: below 93 %, or below 94 % from 40 items on.

`docs/statistics.md` describes the simulation. Pages show a note once below each table with such an interval.
"""

from __future__ import annotations

from collections.abc import Iterable

from grading_app.statistics.estimates import AgreementEstimate
from grading_app.statistics.paired import FLIP_INTERVAL, STUDENT_INTERVAL, TANGO_INTERVAL, PairedChange

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
