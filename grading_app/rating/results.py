"""What came of a queue: progress, attention, means and agreement, and the rows behind them."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

from django.db.models import Avg, Count, Q, StdDev

from grading_app.models import RaterAssignment, Rating, RatingQueue
from grading_app.rating.sessions import rated_things
from runs_app.models import Dimension

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class RaterLine:
    """How far one rater is. seconds: the median of a rating; passed of checked: attention checks."""

    assignment: RaterAssignment
    done: int
    total: int
    passed: int
    checked: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class DimensionLine:
    """One dimension over the whole queue.

    mean, sd: of the items' means, and between them; within: the mean of the items' SDs between raters.
    alpha: Krippendorff's, ordinal; icc: ICC(2,1) over the items that all its raters rated. None where not defined.
    """

    dimension: Dimension
    n: int
    items: int
    raters: int
    mean: float | None
    sd: float | None
    within: float | None
    alpha: Any
    icc: Any


@dataclass(frozen=True, slots=True)
class ItemMeans:
    """The ratings of one item, or of one answer to it (a trial), on one dimension. sd: None below two ratings."""

    item: int
    trial: int | None
    dimension: int
    n: int
    mean: float
    sd: float | None


def passes(queue: RatingQueue, key: str, value: int | None) -> bool:
    return value in queue.attention_checks.get(key, [])


def rater_lines(queue: RatingQueue) -> list[RaterLine]:
    checks, seconds = _checks(queue), _seconds(queue)
    counted: Any = queue.assignments.select_related("user", "dimension").annotate(
        total=Count("ratings"), done=Count("ratings", filter=~Q(ratings__value=None))
    )
    return [
        RaterLine(
            row,
            row.done,
            row.total,
            sum(checks[row.pk]),
            len(checks[row.pk]),
            median(seconds[row.pk]) if row.pk in seconds else None,
        )
        for row in counted
    ]


def _checks(queue: RatingQueue) -> dict[int, list[bool]]:
    given = Rating.objects.given().filter(assignment__queue=queue, kind=Rating.Kind.CHECK)
    found: dict[int, list[bool]] = defaultdict(list)
    for rater, key, value in given.values_list("assignment", "item__key", "value"):
        found[rater].append(passes(queue, key, value))
    return found


def _seconds(queue: RatingQueue) -> dict[int, list[float]]:
    given = Rating.objects.given().filter(assignment__queue=queue).exclude(kind=Rating.Kind.PRACTICE)
    found: dict[int, list[float]] = defaultdict(list)
    for rater, seconds in given.values_list("assignment", "seconds"):
        found[rater].append(seconds or 0.0)  # Never empty where a value was given.
    return found


def item_means(queue: RatingQueue) -> list[ItemMeans]:
    """Each item, or answer, and dimension with at least one rating that counts."""
    counted = Rating.objects.counted().filter(assignment__queue=queue).order_by("dimension", "item", "trial")
    grouped = counted.values("item", "trial", "dimension").annotate(
        n=Count("pk"), mean=Avg("value"), sd=StdDev("value", sample=True)
    )
    return [ItemMeans(**row) for row in grouped]


def dimension_lines(queue: RatingQueue) -> list[DimensionLine]:
    triples: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    counted = Rating.objects.counted().filter(assignment__queue=queue)
    thing = "trial" if queue.rates_answers else "item"
    for dimension, unit, rater, value in counted.values_list("dimension", thing, "assignment", "value"):
        triples[dimension].append((unit, rater, value or 0))
    means: dict[int, list[ItemMeans]] = defaultdict(list)
    for line in item_means(queue):
        means[line.dimension].append(line)
    return [
        _dimension_line(dimension, triples[dimension.pk], means[dimension.pk])
        for dimension in queue.dimensions.order_by("name", "version")
    ]


def _dimension_line(dimension: Dimension, triples: list[tuple[int, int, int]], means: list[ItemMeans]) -> DimensionLine:
    alpha, icc = _agreement(triples)
    levels, spreads = [line.mean for line in means], [line.sd for line in means if line.sd is not None]
    return DimensionLine(
        dimension,
        n=len(triples),
        items=len(means),
        raters=len({rater for _, rater, _ in triples}),
        mean=fmean(levels) if levels else None,
        sd=stdev(levels) if len(levels) > 1 else None,
        within=fmean(spreads) if spreads else None,
        alpha=alpha,
        icc=icc,
    )


def _agreement(triples: list[tuple[int, int, int]]) -> tuple[Any, Any]:
    """Two estimates, or None where fewer than two people rated."""
    if len({rater for _, rater, _ in triples}) < 2:
        return None, None
    from grading_app.agreement.alpha import krippendorff_alpha  # numpy, which other pages do not need.
    from grading_app.agreement.intraclass import intraclass_correlation
    from grading_app.agreement.ratings import ratings_from

    ratings = ratings_from(triples)
    return krippendorff_alpha(ratings, "ordinal").result(), intraclass_correlation(ratings, "2,1").result()


# --- rows ------------------------------------------------------------------------------------------------------------

COLUMNS = [
    "queue", "dataset", "dataset_hash", "rater", "item_key", "category", "dimension", "dimension_version", "kind",
    "position", "rating", "passed", "seconds", "revisions", "excluded", "rated_at", "experiment", "condition_id",
    "trial_id", "sample_idx",
]  # fmt: skip


def csv_lines(queue: RatingQueue) -> Iterator[str]:
    """Every rating that was given, practice and excluded raters with it, for spreadsheets. The last four columns say
    which answer was rated; they are empty where the item itself was."""
    yield _csv_line(COLUMNS)
    given = Rating.objects.given().filter(assignment__queue=queue).order_by("assignment__number", "position")
    of_queue = [queue.name, str(queue.dataset), queue.dataset.content_hash]
    for row in given.values_list(*STORED, named=True).iterator(chunk_size=2000):
        yield _csv_line([*of_queue, *_cells(queue, row)])


STORED = [
    "assignment__number", "item__key", "item__category", "dimension__name", "dimension__version", "kind", "position",
    "value", "seconds", "revisions", "assignment__excluded_at", "rated_at", "trial__run__experiment__slug",
    "trial__run__condition__condition_id", "trial", "trial__sample_idx",
]  # fmt: skip


def _cells(queue: RatingQueue, row: Any) -> Iterator[Any]:
    yield from row[:8]
    checked = row.kind == Rating.Kind.CHECK
    yield str(passes(queue, row.item__key, row.value)).lower() if checked else ""
    yield round(row.seconds, 3)
    yield row.revisions
    yield str(row.assignment__excluded_at is not None).lower()
    yield row.rated_at.isoformat()
    yield from ("" if cell is None else cell for cell in row[12:])


def _csv_line(cells: Iterable[Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow([_defused(cell) for cell in cells])
    return out.getvalue()


def _defused(cell: Any) -> Any:
    """A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell


def items_left(queue: RatingQueue) -> tuple[int, int]:
    """How many items, or answers, have all the raters they want on every dimension, and how many there are."""
    wanted = queue.dimensions.count()
    full: dict[int, int] = defaultdict(int)
    for line in item_means(queue):
        full[line.trial or line.item] += line.n >= queue.raters_wanted
    return sum(count >= wanted for count in full.values()), len(rated_things(queue))
