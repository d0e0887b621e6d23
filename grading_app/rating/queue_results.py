"""What came of a queue: progress, attention, means and agreement, and the rows behind them."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

from django.db.models import Aggregate, Avg, Count, FloatField, Q, StdDev
from django.utils import timezone

from grading_app.export.spreadsheet import escape_cell
from grading_app.models import Grading, RaterAssignment, Rating, RatingQueue
from grading_app.rating.questions import Key, aspects_of
from grading_app.rating.session import rated_things

if TYPE_CHECKING:
    from grading_app.statistics.alpha import Level

Thing = tuple[int, int | None, int | None]
"""An item, and of answers the one that is rated, and the one it is compared with."""
Triple = tuple[Thing, int, float]
"""What was rated, by whom, and how high."""


@dataclass(frozen=True, slots=True)
class RaterLine:
    """How far one rater is. seconds: the median of a rating; passed of checked: attention checks; failed: the keys of
    the items whose checks they failed."""

    assignment: RaterAssignment
    done: int
    total: int
    passed: int
    checked: int
    seconds: float | None
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AspectLine:
    """One dimension or criterion over the whole queue, or what all criteria come to.

    Of two answers, the level of a rating is the share of wins of the one with the lower key.
    mean, sd: of the items' means, and between them; within: the mean of the items' SDs between raters.
    alpha: Krippendorff's, ordinal, of choices between two nominal; icc: ICC(2,1) over the items that all its raters
    rated, but of choices. None where not defined.
    """

    name: str
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
    """The ratings of one item, of one answer to it, or of two of them, on one dimension or criterion.

    sd: None below two ratings; seconds: the median of a rating.
    """

    item: int
    trial: int | None
    rival: int | None
    dimension: int | None
    criterion: str
    n: int
    mean: float
    sd: float | None
    seconds: float

    @property
    def thing(self) -> Thing:
        return self.item, self.trial, self.rival


def passes(queue: RatingQueue, key: str, value: float | None) -> bool:
    return value in queue.attention_checks.get(key, [])


def rater_lines(queue: RatingQueue) -> list[RaterLine]:
    checks, seconds = _checks(queue), _seconds(queue)
    counted: Any = (
        queue.assignments.select_related("user", "dimension")
        .order_by("number")
        .annotate(total=Count("ratings"), done=Count("ratings", filter=~Q(ratings__value=None)))
    )
    return [
        RaterLine(
            row,
            row.done,
            row.total,
            sum(passed for _, passed in checks[row.pk]),
            len(checks[row.pk]),
            median(seconds[row.pk]) if row.pk in seconds else None,
            tuple(dict.fromkeys(key for key, passed in checks[row.pk] if not passed)),
        )
        for row in counted
    ]


def _checks(queue: RatingQueue) -> dict[int, list[tuple[str, bool]]]:
    """By rater, the item of each check and whether it was passed."""
    given = Rating.objects.given().filter(assignment__queue=queue, kind=Rating.Kind.CHECK).order_by("position")
    found: dict[int, list[tuple[str, bool]]] = defaultdict(list)
    for rater, key, value in given.values_list("assignment", "item__key", "value"):
        found[rater].append((key, passes(queue, key, value)))
    return found


def _seconds(queue: RatingQueue) -> dict[int, list[float]]:
    given = Rating.objects.given().filter(assignment__queue=queue).exclude(kind=Rating.Kind.PRACTICE)
    found: dict[int, list[float]] = defaultdict(list)
    for rater, seconds in given.values_list("assignment", "seconds"):
        found[rater].append(seconds or 0.0)  # Never empty where a value was given.
    return found


def item_means(queue: RatingQueue) -> list[ItemMeans]:
    """Each item, answer or pair, on each dimension or criterion with at least one rating that counts."""
    counted = Rating.objects.counted().levelled().filter(assignment__queue=queue)
    by_thing = ("item", "one", "other", "dimension", "criterion")
    grouped = (
        counted.order_by("dimension", "criterion", "item", "one", "other")
        .values(*by_thing)
        .annotate(
            n=Count("pk"),
            mean=Avg("level"),
            sd=StdDev("level", sample=True),
            seconds_each=Percentile(0.5, "seconds"),
        )
    )
    return [_item_means(**row) for row in grouped]


def _item_means(*, one: int | None, other: int | None, seconds_each: float, **row: Any) -> ItemMeans:
    return ItemMeans(trial=one, rival=other if other != one else None, seconds=seconds_each, **row)


class Percentile(Aggregate):
    """PostgreSQL's percentile_cont: a share of the values lies below it."""

    function = "percentile_cont"
    template = "%(function)s(%(share)s) WITHIN GROUP (ORDER BY %(expressions)s)"

    def __init__(self, share: float, expression: str) -> None:
        super().__init__(expression, share=share, output_field=FloatField())


def aspect_lines(queue: RatingQueue) -> list[AspectLine]:
    """One for each dimension or criterion; of several criteria, another one for what they come to."""
    triples: dict[Key, list[Triple]] = defaultdict(list)
    counted = Rating.objects.counted().levelled().filter(assignment__queue=queue)
    rows = counted.values_list("dimension", "criterion", "item", "one", "other", "assignment", "level")
    for dimension, criterion, item, one, other, rater, level in rows:
        triples[dimension, criterion].append(((item, one, other), rater, level))
    scale: Level = "nominal" if queue.rates_pairs else "ordinal"
    lines = [_aspect_line(aspect.name, triples[aspect.key], scale) for aspect in aspects_of(queue)]
    return [*lines, _aspect_line("in total", _totals(queue), scale)] if len(lines) > 1 and queue.rubric else lines


def _totals(queue: RatingQueue) -> list[Triple]:
    graded = Grading.objects.filter(condition__assignment__queue=queue).exclude(score=None)
    rows = graded.values_list("trial__item", "trial", "condition__assignment", "score")
    return [((item, trial, trial), rater, score or 0.0) for item, trial, rater, score in rows]


def _aspect_line(name: str, triples: list[Triple], scale: Level) -> AspectLine:
    alpha, icc = _agreement(triples, scale)
    of_thing: dict[Thing, list[float]] = defaultdict(list)
    for thing, _, level in triples:
        of_thing[thing].append(level)
    levels = [fmean(given) for given in of_thing.values()]
    spreads = [stdev(given) for given in of_thing.values() if len(given) > 1]
    return AspectLine(
        name,
        n=len(triples),
        items=len(levels),
        raters=len({rater for _, rater, _ in triples}),
        mean=fmean(levels) if levels else None,
        sd=stdev(levels) if len(levels) > 1 else None,
        within=fmean(spreads) if spreads else None,
        alpha=alpha,
        icc=icc,
    )


def _agreement(triples: list[Triple], scale: Level) -> tuple[Any, Any]:
    """Two estimates, or None where fewer than two people rated."""
    if len({rater for _, rater, _ in triples}) < 2:
        return None, None
    from grading_app.statistics.alpha import krippendorff_alpha  # numpy, which other pages do not need.
    from grading_app.statistics.intraclass import intraclass_correlation
    from grading_app.statistics.ratings import ratings_from

    ratings = ratings_from(triples)
    icc = None if scale == "nominal" else intraclass_correlation(ratings, "2,1").result()
    return krippendorff_alpha(ratings, scale).result(), icc


# --- rows ------------------------------------------------------------------------------------------------------------

COLUMNS = [
    "queue", "dataset", "dataset_hash", "rater", "item_key", "category", "dimension", "dimension_version", "kind",
    "position", "rating", "passed", "seconds", "revisions", "excluded", "rated_at", "experiment", "condition_id",
    "trial_id", "sample_idx", "rubric", "rubric_hash", "criterion", "rival_trial_id", "alias",
]  # fmt: skip


def csv_lines(queue: RatingQueue) -> Iterator[str]:
    """Every rating that was given, practice and excluded raters with it, for spreadsheets. The last columns say
    which answer was rated, and by which rubric; they are empty where the item itself was. Last, what the rater
    goes by."""
    yield _csv_line(COLUMNS)
    given = Rating.objects.given().filter(assignment__queue=queue).order_by("assignment__number", "position")
    of_queue = [queue.name, str(queue.dataset), queue.dataset.content_hash]
    for row in given.values_list(*STORED, named=True).iterator(chunk_size=2000):
        yield _csv_line([*of_queue, *_cells(queue, row)])


STORED = [
    "assignment__number", "item__key", "item__category", "dimension__name", "dimension__version", "kind", "position",
    "value", "seconds", "revisions", "assignment__excluded_at", "rated_at", "trial__run__experiment__slug",
    "trial__run__condition__condition_id", "trial", "trial__sample_idx", "assignment__queue__rubric__name",
    "assignment__queue__rubric__content_hash", "criterion", "rival", "assignment__alias",
]  # fmt: skip


def _cells(queue: RatingQueue, row: Any) -> Iterator[Any]:
    yield from ("" if cell is None else cell for cell in row[:7])
    yield int(row.value) if row.value.is_integer() else row.value
    checked = row.kind == Rating.Kind.CHECK
    yield str(passes(queue, row.item__key, row.value)).lower() if checked else ""
    yield round(row.seconds, 3)
    yield row.revisions
    yield str(row.assignment__excluded_at is not None).lower()
    yield row.rated_at.isoformat()
    yield from ("" if cell is None else cell for cell in row[12:])


def _csv_line(cells: Iterable[Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow([escape_cell(cell) for cell in cells])
    return out.getvalue()


def raters_missing(queue: RatingQueue, things: int) -> int:
    """How many more people have to be asked until each of so many things can get its raters; a link not used yet is
    one asked.

    Nobody rates a thing twice, so there are as many people as a thing wants raters; and as many as it takes that the
    shares of all, where a rater is given some of the things alone, cover them so often.
    """
    raters = queue.assignments.counted()
    links = queue.invitations.filter(used_at=None, assignment=None, expires_at__gt=timezone.now()).count()
    asked, begun = raters.count() + links, raters.exclude(started_at=None).count()
    aspects = len(aspects_of(queue))
    kinds, each = (aspects, 1) if queue.one_dimension_per_rater else (1, aspects)
    by_heads = queue.raters_wanted * kinds - asked
    share = min(queue.items_per_rater or things, things)
    if not share:
        return max(0, by_heads)
    given_out = Rating.objects.filter(assignment__in=raters, kind=Rating.Kind.ITEM).count() / each
    uncovered = things * queue.raters_wanted * kinds - given_out - share * (asked - begun)
    return max(0, by_heads, ceil(uncovered / share))


def items_left(queue: RatingQueue) -> tuple[int, int]:
    """How many items, or answers, have all the raters they want on all that is asked, and how many there are."""
    wanted = len(aspects_of(queue))
    full: dict[Thing, int] = defaultdict(int)
    for line in item_means(queue):
        full[line.thing] += line.n >= queue.raters_wanted
    return sum(count >= wanted for count in full.values()), len(rated_things(queue))
