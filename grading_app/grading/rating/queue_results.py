"""The results of a queue: progress, attention checks, means, agreement and norms, and the exported rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from statistics import fmean, median, pstdev, stdev
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Aggregate, Avg, Count, FloatField, Q, StdDev
from django.utils import timezone

from datasets_app import curation
from datasets_app.models import Dataset, Norm
from evalsite.lib.history import Actor, record_changes
from evalsite.lib.text.spreadsheet import format_csv_line
from grading_app.grading.rating.questions import Key, list_questions
from grading_app.models import Grading, RaterAssignment, Rating, RatingQueue
from grading_app.models.rating import NORMS, QueueError

if TYPE_CHECKING:
    from grading_app.statistics.agreement_coefficients import Level
    from grading_app.statistics.intervals import AgreementEstimate


MIN_ITEMS = 5  # Fewer common items say too little about a rater.
MIN_OTHERS = 2  # Of two raters who disagree, neither is the odd one.
LOW_SHARE = 0.5
FAST_SHARE = 0.25


RatedUnit = tuple[int, int | None, int | None]
"""An item, the rated answer and the answer that it is compared with."""
Triple = tuple[RatedUnit, int, float]
"""The rated unit, the rater and the value."""


@dataclass(frozen=True, slots=True)
class RaterProgress:
    """The progress of one rater.

    `seconds` is the median time of a rating. `passed` of `checked` attention checks were passed.
    `failed` holds the keys of the items whose checks failed.
    `agreement` is that with the other raters, or None if they share too few items. `is_low` and `is_fast` mark an
    agreement and a time far below those of the others.
    """

    assignment: RaterAssignment
    done: int
    total: int
    passed: int
    checked: int
    seconds: float | None
    failed: tuple[str, ...] = ()
    agreement: Any = None
    is_low: bool = False
    is_fast: bool = False


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The results of one dimension or criterion over the whole queue, or of all criteria in total.

    For pairs, the level of a rating is the share of wins of the answer with the lower key.
    `mean` and `sd` are over the items' means; `within` is the mean of the items' SDs between raters.
    `alpha` is Krippendorff's alpha: ordinal, but nominal for pairs.
    `icc` is ICC(2,1) over the items that all its raters rated, not computed for pairs.
    Statistics that are undefined are None.
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
    """The ratings of one item, one answer or one pair of answers, on one dimension or criterion.

    `sd` is None below two ratings. `seconds` is the median time of a rating.
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
    def unit(self) -> RatedUnit:
        return self.item, self.trial, self.rival


def list_rater_progress(queue: RatingQueue) -> list[RaterProgress]:
    given = Rating.objects.given().filter(assignment__queue=queue)
    # By rater, each check's item key and whether the rater passed it.
    checks: dict[int, list[tuple[str, bool]]] = defaultdict(list)
    of_checks = given.filter(kind=Rating.Kind.CHECK).order_by("position")
    for rater, key, value in of_checks.values_list("assignment", "item__key", "value"):
        checks[rater].append((key, queue.passes_check(key, value)))
    seconds: dict[int, list[float]] = defaultdict(list)
    for rater, duration in given.exclude(kind=Rating.Kind.PRACTICE).values_list("assignment", "seconds"):
        seconds[rater].append(duration or 0.0)  # Set whenever a value is set.
    assignments: Any = (
        queue.assignments.select_related("user", "dimension")
        .order_by("number")
        .annotate(total=Count("ratings"), done=Count("ratings", filter=~Q(ratings__value=None)))
    )
    counted = [row.pk for row in assignments if row.excluded_at is None and row.pk in seconds]
    agreement = measure_rater_agreement(queue)
    low, fast = find_low_agreement(agreement), find_fast_raters({rater: median(seconds[rater]) for rater in counted})
    return [
        RaterProgress(
            row,
            row.done,
            row.total,
            sum(passed for _, passed in checks[row.pk]),
            len(checks[row.pk]),
            median(seconds[row.pk]) if row.pk in seconds else None,
            tuple(dict.fromkeys(key for key, passed in checks[row.pk] if not passed)),
            agreement.get(row.pk),
            row.pk in low,
            row.pk in fast,
        )
        for row in assignments
    ]


def list_item_means(queue: RatingQueue) -> list[ItemMeans]:
    """Return the means per item, answer or pair, and per dimension or criterion, over the ratings that count."""
    ratings = Rating.objects.counted().with_levels().filter(assignment__queue=queue)
    unit_fields = ("item", "low_trial", "high_trial", "dimension", "criterion")
    groups = (
        ratings.order_by("dimension", "criterion", "item", "low_trial", "high_trial")
        .values(*unit_fields)
        .annotate(
            n=Count("pk"),
            mean=Avg("level"),
            sd=StdDev("level", sample=True),
            seconds_each=Percentile(0.5, "seconds"),
        )
    )
    means = []
    for row in groups:
        low, high, seconds = (row.pop(name) for name in ("low_trial", "high_trial", "seconds_each"))
        means.append(ItemMeans(trial=low, rival=high if high != low else None, seconds=seconds, **row))
    return means


class Percentile(Aggregate):
    """PostgreSQL's percentile_cont: `share` of the values lie below the result."""

    function = "percentile_cont"
    template = "%(function)s(%(share)s) WITHIN GROUP (ORDER BY %(expressions)s)"

    def __init__(self, share: float, expression: str) -> None:
        super().__init__(expression, share=share, output_field=FloatField())


def list_question_results(queue: RatingQueue) -> list[QuestionResult]:
    """Return one line per dimension or criterion, and a total line for several criteria."""
    triples: dict[Key, list[Triple]] = defaultdict(list)
    ratings = Rating.objects.counted().with_levels().filter(assignment__queue=queue)
    rows = ratings.values_list("dimension", "criterion", "item", "low_trial", "high_trial", "assignment", "level")
    for dimension, criterion, item, low_trial, high_trial, rater, level in rows:
        triples[dimension, criterion].append(((item, low_trial, high_trial), rater, level))
    scale: Level = "nominal" if queue.rates_pairs else "ordinal"
    lines = [_summarize_question(question.name, triples[question.key], scale) for question in list_questions(queue)]
    if len(lines) > 1 and queue.rubric:
        gradings = Grading.objects.filter(condition__assignment__queue=queue).exclude(score=None)
        totals = gradings.values_list("trial__item", "trial", "condition__assignment", "score")
        sums: list[Triple] = [((item, trial, trial), rater, score or 0.0) for item, trial, rater, score in totals]
        lines.append(_summarize_question("in total", sums, scale))
    return lines


def _summarize_question(name: str, triples: list[Triple], scale: Level) -> QuestionResult:
    alpha, icc = _measure_agreement(triples, scale)
    levels_by_unit: dict[RatedUnit, list[float]] = defaultdict(list)
    for unit, _, level in triples:
        levels_by_unit[unit].append(level)
    levels = [fmean(unit_levels) for unit_levels in levels_by_unit.values()]
    spreads = [stdev(unit_levels) for unit_levels in levels_by_unit.values() if len(unit_levels) > 1]
    return QuestionResult(
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


def _measure_agreement(triples: list[Triple], scale: Level) -> tuple[Any, Any]:
    """Return alpha and ICC as estimates, or None for both if fewer than two people rated.

    The answers to one item are correlated, so the interval of the ICC is over items, as on the page of agreement.
    """
    if len({rater for _, rater, _ in triples}) < 2:
        return None, None
    from grading_app.statistics.agreement_coefficients import (
        krippendorff_alpha,  # Imports numpy, which other pages do not need.
    )
    from grading_app.statistics.bootstrap import estimate_agreement
    from grading_app.statistics.intraclass import intraclass_correlation
    from grading_app.statistics.ratings import Ratings

    ratings = Ratings.from_triples(triples)
    alpha = krippendorff_alpha(ratings, scale).result()
    if scale == "nominal":
        return alpha, None
    items = {unit: unit[0] for unit in ratings.units}  # type: ignore[index]
    return alpha, estimate_agreement(intraclass_correlation(ratings, "2,1"), items)


# --- rows ------------------------------------------------------------------------------------------------------------

EXPORT_COLUMNS = [
    "queue", "dataset", "dataset_hash", "rater", "item_key", "category", "dimension", "dimension_version", "kind",
    "position", "rating", "passed", "seconds", "revisions", "excluded", "rated_at", "experiment", "condition_id",
    "trial_id", "sample_idx", "rubric", "rubric_hash", "criterion", "rival_trial_id", "alias",
]  # fmt: skip


def iterate_csv_lines(queue: RatingQueue) -> Iterator[str]:
    """Yield every given rating as a CSV line for spreadsheets, including practice and excluded raters.

    Later columns name the rated answer and the rubric; they are empty if the item itself was rated.
    The last column is the rater's alias.
    """
    yield format_csv_line(EXPORT_COLUMNS)
    ratings = Rating.objects.given().filter(assignment__queue=queue).order_by("assignment__number", "position")
    queue_cells = [queue.name, str(queue.dataset), queue.dataset.content_hash]
    for row in ratings.values_list(*EXPORTED_FIELDS, named=True).iterator(chunk_size=2000):
        yield format_csv_line([*queue_cells, *_build_csv_cells(queue, row)])


EXPORTED_FIELDS = [
    "assignment__number", "item__key", "item__category", "dimension__name", "dimension__version", "kind", "position",
    "value", "seconds", "revisions", "assignment__excluded_at", "rated_at", "trial__run__experiment__slug",
    "trial__run__condition__condition_id", "trial", "trial__sample_idx", "assignment__queue__rubric__name",
    "assignment__queue__rubric__content_hash", "criterion", "rival", "assignment__alias",
]  # fmt: skip


def _build_csv_cells(queue: RatingQueue, row: Any) -> Iterator[Any]:
    yield from ("" if cell is None else cell for cell in row[:7])
    yield int(row.value) if row.value.is_integer() else row.value
    is_check = row.kind == Rating.Kind.CHECK
    yield str(queue.passes_check(row.item__key, row.value)).lower() if is_check else ""
    yield round(row.seconds, 3)
    yield row.revisions
    yield str(row.assignment__excluded_at is not None).lower()
    yield row.rated_at.isoformat()
    yield from ("" if cell is None else cell for cell in row[12:])


def count_missing_raters(queue: RatingQueue, n_units: int) -> int:
    """Return how many more people to invite so that each unit can get its raters. An unused link counts as invited.

    Nobody rates a unit twice, so there must be at least `raters_wanted` people.
    If each rater gets only a share of the units, all shares together must cover every unit often enough.
    """
    raters = queue.assignments.counted()
    links = queue.invitations.filter(used_at=None, assignment=None, expires_at__gt=timezone.now()).count()
    invited, started = raters.count() + links, raters.exclude(started_at=None).count()
    questions = len(list_questions(queue))
    n_kinds, ratings_each = (questions, 1) if queue.one_dimension_per_rater else (1, questions)
    missing_heads = queue.raters_wanted * n_kinds - invited
    share = min(queue.items_per_rater or n_units, n_units)
    if not share:
        return max(0, missing_heads)
    assigned = Rating.objects.filter(assignment__in=raters, kind=Rating.Kind.ITEM).count() / ratings_each
    uncovered = n_units * queue.raters_wanted * n_kinds - assigned - share * (invited - started)
    return max(0, missing_heads, ceil(uncovered / share))


def count_complete(queue: RatingQueue) -> tuple[int, int]:
    """Return how many items or answers have all their raters on all questions, and how many there are."""
    n_questions = len(list_questions(queue))
    complete_questions: dict[RatedUnit, int] = defaultdict(int)
    for line in list_item_means(queue):
        complete_questions[line.unit] += line.n >= queue.raters_wanted
    return sum(count >= n_questions for count in complete_questions.values()), len(queue.list_rated_keys())


@transaction.atomic
def make_norms(queue: RatingQueue, *, by: Actor, reason: str) -> Dataset:
    """Create a draft of the queue's dataset whose norms on the rated dimensions are the means of the ratings.

    Norms on other dimensions and of unrated items stay. The history of the draft and of the queue records the ratings.
    """
    queue = RatingQueue.objects.select_for_update().get(pk=queue.pk)
    if queue.rates_answers:
        raise QueueError(f"{queue} rates answers; norms describe items")
    if queue.status == RatingQueue.Status.OPEN:
        raise QueueError(f"{queue} is open: raters can still undo ratings. Close it first; you can reopen it later")
    means, basis = list_item_means(queue), queue.hash_ratings()
    if not means:
        raise QueueError(f"{queue} has no counted ratings yet")
    draft = curation.duplicate(queue.dataset, by=by, reason=reason)
    names: dict[int | None, str] = dict(queue.dimensions.values_list("pk", "name"))
    keys = dict(queue.dataset.items.values_list("pk", "key"))
    with draft.change_draft():
        copies = dict(draft.items.values_list("key", "pk"))
        norms = [
            Norm(
                item_id=copies[keys[line.item]],
                dimension=names[line.dimension],
                mean=line.mean,
                sd=line.sd,
                n=line.n,
            )
            for line in means
        ]
        Norm.objects.bulk_create(
            norms,
            batch_size=1000,
            update_conflicts=True,
            unique_fields=["item", "dimension"],
            update_fields=["mean", "sd", "n"],
        )
        draft.add_history_line(NORMS, f"{len(norms)} means of {basis} in {queue}", by=by, reason=reason)
    record_changes([(queue, "", f"{basis} to {draft}"[:200])], by=by, reason=reason, aspect=NORMS)
    return draft


def measure_rater_agreement(queue: RatingQueue) -> dict[int, AgreementEstimate]:
    """Return the agreement of each rater with the others, by assignment, with its 95 % interval over items.

    It is Lin's concordance between the rater's ratings and the mean of the other raters' ratings of the same unit, over
    all questions. Ratings are standardised within their question, because questions differ in level and scale.
    Only raters who share at least MIN_ITEMS items with others are included. Excluded raters do not count.
    """
    rows = Rating.objects.counted().with_levels().filter(assignment__queue=queue)
    levels: dict[Key, list[Triple]] = defaultdict(list)
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
