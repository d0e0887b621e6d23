"""The agreement of each rater of a queue with the others, and the marks for raters far below them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING

from grading_app.models import Rating, RatingQueue
from grading_app.rating.questions import Key

if TYPE_CHECKING:
    from grading_app.statistics.estimates import AgreementEstimate

Unit = tuple[int, int | None, int | None]
"""An item, the rated answer and the answer that it is compared with."""
MIN_ITEMS = 5  # Fewer common items say too little about a rater.
MIN_OTHERS = 2  # Of two raters who disagree, neither is the odd one.
LOW_SHARE = 0.5
FAST_SHARE = 0.25


def measure_rater_agreement(queue: RatingQueue) -> dict[int, AgreementEstimate]:
    """Return the agreement of each rater with the others, by assignment, with its 95 % interval over items.

    It is Lin's concordance between the rater's ratings and the mean of the other raters' ratings of the same unit, over
    all questions. Ratings are standardised within their question, because questions differ in level and scale.
    Only raters who share at least MIN_ITEMS items with others are included. Excluded raters do not count.
    """
    rows = Rating.objects.counted().with_levels().filter(assignment__queue=queue)
    levels: dict[Key, list[tuple[Unit, int, float]]] = defaultdict(list)
    fields = ("dimension", "criterion", "item", "low_trial", "high_trial", "assignment", "level")
    for dimension, criterion, item, low_trial, high_trial, rater, level in rows.values_list(*fields):
        levels[dimension, criterion].append(((item, low_trial, high_trial), rater, level))
    by_unit: dict[tuple[Hashable, ...], dict[int, float]] = defaultdict(dict)
    for question, ratings in levels.items():
        centre, spread = fmean(level for *_, level in ratings), pstdev(level for *_, level in ratings) or 1.0
        for unit, rater, level in ratings:
            by_unit[(*unit, question)][rater] = (level - centre) / spread
    raters = {rater for values in by_unit.values() for rater in values}
    estimates = {rater: _compare_with_others(by_unit, rater) for rater in sorted(raters)}
    return {rater: estimate for rater, estimate in estimates.items() if estimate is not None}


def _compare_with_others(
    by_unit: Mapping[tuple[Hashable, ...], Mapping[int, float]], rater: int
) -> AgreementEstimate | None:
    from grading_app.statistics.bootstrap import bootstrap  # Imports numpy, which other pages do not need.
    from grading_app.statistics.concordance import lins_concordance
    from grading_app.statistics.ratings import Ratings

    shared = {unit: values for unit, values in by_unit.items() if rater in values and len(values) > 1}
    items: dict[Hashable, Hashable] = {unit: unit[0] for unit in shared}
    if len(set(items.values())) < MIN_ITEMS:
        return None
    triples = [
        triple
        for unit, values in shared.items()
        for triple in (
            (unit, "rater", values[rater]),
            (unit, "others", fmean(value for other, value in values.items() if other != rater)),
        )
    ]
    estimate = bootstrap(lins_concordance(Ratings.from_triples(triples)), seed=0, items=items)
    return None if estimate.estimate is None else estimate


def find_low_agreement(agreement: Mapping[int, AgreementEstimate]) -> set[int]:
    """Return the raters whose whole interval lies below LOW_SHARE of the median agreement of the other raters."""
    low = set()
    for rater, estimate in agreement.items():
        others = [row.estimate for other, row in agreement.items() if other != rater and row.estimate is not None]
        if estimate.high is not None and len(others) >= MIN_OTHERS and estimate.high < LOW_SHARE * median(others):
            low.add(rater)
    return low


def find_fast_raters(seconds: Mapping[int, float]) -> set[int]:
    """Return the raters whose median time is below FAST_SHARE of the median of the other raters' median times."""
    fast = set()
    for rater, own in seconds.items():
        others = [value for other, value in seconds.items() if other != rater]
        if len(others) >= MIN_OTHERS and own < FAST_SHARE * median(others):
            fast.add(rater)
    return fast
