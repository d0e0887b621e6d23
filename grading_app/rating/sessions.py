"""What a rater does: start, rate, take back. Every step leaves a session that can go on at any time, anywhere."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from datasets_app.models import Item
from grading_app.models import RatedAnswer, RaterAssignment, Rating, RatingQueue
from grading_app.rating.ordering import Material, Step, least_used, most_wanted, steps

LONGEST_S = 86_400.0


class RatingError(ValueError):
    """What was sent cannot be recorded; the message is for the rater, and nothing was changed."""


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int

    @property
    def percent(self) -> int:
        return math.floor(100 * self.done / self.total) if self.total else 0


# --- starting --------------------------------------------------------------------------------------------------------


def start(assignment: RaterAssignment) -> bool:
    """Lay out this rater's session; nothing where it is laid out already. False where no item wants another rater.

    Holds the queue's row, so that raters who start at once never give an item more raters than it wants.
    """
    with transaction.atomic():
        queue = RatingQueue.objects.select_for_update().get(pk=assignment.queue_id)
        assignment.refresh_from_db()
        if assignment.started_at:
            return True
        if not queue.is_open or assignment.excluded_at:
            raise RatingError("This is not open for ratings now.")
        dimensions = _dimensions_for(queue, assignment)
        material = _material(queue, assignment, dimensions)
        if material.empty:
            return False
        _lay_out(assignment, steps(material, dimensions, seed=assignment.seed, in_blocks=queue.in_blocks), material)
    return True


def _lay_out(assignment: RaterAssignment, order: list[Step], material: Material) -> None:
    """A row for each step. The keys of answers are those of their trials, and `alike` says of which item each is."""
    Rating.objects.bulk_create(
        Rating(
            assignment=assignment,
            item_id=material.alike.get(step.item, step.item),
            trial_id=step.item if material.alike else None,
            dimension_id=step.dimension,
            kind=step.kind,
            position=position,
        )
        for position, step in enumerate(order, start=1)
    )
    assignment.started_at = timezone.now()
    assignment.save(update_fields=["started_at", "dimension"])


def _dimensions_for(queue: RatingQueue, assignment: RaterAssignment) -> list[int]:
    """All dimensions of the queue, by name; or the one that the fewest raters have and that still wants raters."""
    keys = list(queue.dimensions.order_by("name", "version").values_list("pk", flat=True))
    if not queue.one_dimension_per_rater:
        return keys
    wanting = [key for key in keys if any(count > 0 for count in _missing(queue, [key]).values())]
    if not wanting:
        return keys[:1]
    raters = queue.assignments.counted().exclude(started_at=None).values_list("dimension", flat=True)
    used = Counter(raters)
    assignment.dimension_id = least_used({key: used[key] for key in wanting})
    return [assignment.dimension_id]


def _material(queue: RatingQueue, assignment: RaterAssignment, dimensions: list[int]) -> Material:
    if queue.rates_answers:
        return _material_of_answers(queue, assignment, dimensions)
    practice, checks = set_apart(queue)
    items = most_wanted(_missing(queue, dimensions), most=queue.items_per_rater, seed=assignment.seed)
    return Material([item.pk for item in practice], items, [item.pk for item in checks])


def _material_of_answers(queue: RatingQueue, assignment: RaterAssignment, dimensions: list[int]) -> Material:
    drawn = queue.answers.order_by("item__position", "pk").values_list("trial", "item", "kind")
    keys = {kind: [trial for trial, _, its in drawn if its == kind] for kind in Rating.Kind.values}
    items = most_wanted(_missing(queue, dimensions), most=queue.items_per_rater, seed=assignment.seed)
    return Material(keys["practice"], items, keys["check"], {trial: item for trial, item, _ in drawn})


def set_apart(queue: RatingQueue) -> tuple[list[Item], list[Item]]:
    """The items for practice and those that check attention: rated by everybody, counted for nobody."""
    checks = list(queue.dataset.items.active().filter(key__in=queue.attention_checks))
    ordinary = queue.dataset.items.active().exclude(key__in=queue.attention_checks)
    return list(ordinary.order_by("position", "pk")[: queue.practice_items]), checks


def rated_items(queue: RatingQueue) -> Any:
    """The items whose ratings count."""
    practice, checks = set_apart(queue)
    return queue.dataset.items.active().exclude(pk__in=[item.pk for item in (*practice, *checks)])


def rated_things(queue: RatingQueue) -> list[int]:
    """The keys of what counts: of items, or of the trials whose answers are rated."""
    if queue.rates_answers:
        kept = RatedAnswer.objects.filter(queue=queue, kind=Rating.Kind.ITEM)
        return list(kept.values_list("trial", flat=True))
    return list(rated_items(queue).values_list("pk", flat=True))


def _missing(queue: RatingQueue, dimensions: list[int]) -> dict[int, int]:
    """How many raters each item or answer still wants, on that of these dimensions which has the most."""
    asked = Rating.objects.filter(
        assignment__queue=queue, assignment__excluded_at=None, kind=Rating.Kind.ITEM, dimension__in=dimensions
    )
    per_cell = Counter(asked.values_list("trial" if queue.rates_answers else "item", "dimension"))
    return {
        thing: queue.raters_wanted - max(per_cell[thing, dimension] for dimension in dimensions)
        for thing in rated_things(queue)
    }


# --- rating ----------------------------------------------------------------------------------------------------------


def due(assignment: RaterAssignment) -> Rating | None:
    """What comes next: the first in the rater's order that has no rating."""
    waiting = assignment.ratings.filter(value=None).select_related("item__image", "dimension")
    return waiting.order_by("position").first()


def shown(assignment: RaterAssignment, position: int) -> Rating | None:
    """What stands at a place that the rater has come to; None for a place beyond the one that is due."""
    here = assignment.ratings.select_related("item__image").filter(position=position).first()
    if here is None or here.value is not None:
        return here
    waiting = due(assignment)
    return here if waiting is not None and waiting.position == position else None


def last_given(assignment: RaterAssignment) -> Rating | None:
    return assignment.ratings.given().order_by("-position").first()


def progress(assignment: RaterAssignment) -> Progress:
    return Progress(assignment.ratings.given().count(), assignment.ratings.count())


def rate(assignment: RaterAssignment, *, position: int, value: int, seconds: float) -> bool:
    """Record the rating that is due. False where another is due by now: it was sent twice, or from an old page.

    RatingError for a value beside the scale, or a queue that is not open.
    """
    waiting = due(assignment)
    if waiting is None or waiting.position != position:
        return False
    if not waiting.dimension.scale_min <= value <= waiting.dimension.scale_max:
        raise RatingError("That is not on the scale.")
    changed = _update(
        assignment,
        assignment.ratings.filter(pk=waiting.pk, value=None),
        value=value,
        seconds=min(max(0.0, seconds), LONGEST_S),
        rated_at=timezone.now(),
    )
    _finish_if_done(assignment)
    return changed


def undo(assignment: RaterAssignment) -> bool:
    """Take back the last rating that was given, so that it is due again. False where there is none."""
    last = last_given(assignment)
    if last is None:
        return False
    given = assignment.ratings.filter(pk=last.pk, value=last.value, rated_at=last.rated_at)
    changed = _update(assignment, given, value=None, seconds=None, rated_at=None, revisions=F("revisions") + 1)
    RaterAssignment.objects.filter(pk=assignment.pk).update(finished_at=None)
    return changed


def _update(assignment: RaterAssignment, ratings: Any, **fields: Any) -> bool:
    """The database refuses a change in a queue that was closed meanwhile.

    The queue's row comes first, as wherever ratings change: the trigger takes it after the rating's, and somebody who
    releases the rater at that moment would wait the other way round.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM grading_app_ratingqueue WHERE id = %s FOR SHARE", [assignment.queue_id])
            return bool(ratings.update(**fields))
    except IntegrityError as error:
        raise RatingError("This is not open for ratings now.") from error


def _finish_if_done(assignment: RaterAssignment) -> None:
    waiting = Rating.objects.filter(assignment=OuterRef("pk"), value=None)
    RaterAssignment.objects.filter(~Exists(waiting), pk=assignment.pk, finished_at=None).update(
        finished_at=timezone.now()
    )
