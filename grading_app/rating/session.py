"""The actions of a rater: start, rate and undo. The session can be resumed after every step, on any device."""

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
from grading_app.rating.gradings import write_grading
from grading_app.rating.presentation_order import Material, Step, choose_most_wanted, find_least_used, order_pair, steps
from grading_app.rating.questions import Aspect, Key, find_aspect, list_aspects

LONGEST_S = 86_400.0


class RatingError(ValueError):
    """A rating that cannot be recorded; the message is for the rater, and nothing has changed."""


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int

    @property
    def percent(self) -> int:
        return math.floor(100 * self.done / self.total) if self.total else 0


# --- starting --------------------------------------------------------------------------------------------------------


def start(assignment: RaterAssignment) -> bool:
    """Create this rater's session if it does not exist yet. Return False if no item needs another rater.

    The queue's row is locked, so raters who start at once never give an item more raters than it needs.
    """
    with transaction.atomic():
        queue = RatingQueue.objects.select_for_update().get(pk=assignment.queue_id)
        assignment.refresh_from_db()
        if assignment.started_at:
            return True
        if not queue.is_open or assignment.excluded_at:
            raise RatingError("This is not open for ratings now.")
        aspects = _aspects_for(queue, assignment)
        drawn = {one.pk: one for one in queue.answers.order_by("item__position", "pk")}
        material = _material(queue, assignment, aspects, drawn)
        if material.empty:
            return False
        places = range(len(aspects))
        order = steps(material, places, seed=assignment.seed, in_blocks=queue.in_blocks)
        _lay_out(assignment, [(step, aspects[step.aspect]) for step in order], drawn)
    return True


def _lay_out(assignment: RaterAssignment, order: list[tuple[Step, Aspect]], drawn: dict[int, RatedAnswer]) -> None:
    """Insert one rating row per step, for an item or for a drawn answer."""
    Rating.objects.bulk_create(
        Rating(
            assignment=assignment,
            **_rated(assignment, step.item, drawn),
            dimension_id=aspect.key[0],
            criterion=aspect.key[1],
            kind=step.kind,
            position=position,
        )
        for position, (step, aspect) in enumerate(order, start=1)
    )
    assignment.started_at = timezone.now()
    assignment.save(update_fields=["started_at", "dimension"])


def _rated(assignment: RaterAssignment, key: int, drawn: dict[int, RatedAnswer]) -> dict[str, int | None]:
    """Return the fields that a step shows: the item, an answer to it, or two answers in this rater's order."""
    if not drawn:
        return {"item_id": key}
    one = drawn[key]
    if one.rival_id is None:
        return {"item_id": one.item_id, "trial_id": one.trial_id}
    first, second = order_pair((one.trial_id, one.rival_id), seed=assignment.seed, key=key)
    return {"item_id": one.item_id, "trial_id": first, "rival_id": second}


def _aspects_for(queue: RatingQueue, assignment: RaterAssignment) -> list[Aspect]:
    """Return all aspects of the queue, or the dimension with the fewest raters among those that still need raters."""
    aspects = list_aspects(queue)
    if not queue.one_dimension_per_rater:
        return aspects
    wanting = [aspect for aspect in aspects if any(count > 0 for count in _missing(queue, [aspect]).values())]
    if not wanting:
        return aspects[:1]
    raters = queue.assignments.counted().exclude(started_at=None).values_list("dimension", flat=True)
    used: Counter[int | None] = Counter(raters)
    place = find_least_used({place: used[aspect.key[0]] for place, aspect in enumerate(wanting)})
    assignment.dimension_id = wanting[place].key[0]
    return [wanting[place]]


def _material(
    queue: RatingQueue, assignment: RaterAssignment, aspects: list[Aspect], drawn: dict[int, RatedAnswer]
) -> Material:
    items = choose_most_wanted(_missing(queue, aspects), most=queue.items_per_rater, seed=assignment.seed)
    if not queue.rates_answers:
        practice, checks = list_practice_and_checks(queue)
        return Material([item.pk for item in practice], items, [item.pk for item in checks])
    keys = {kind: [key for key, one in drawn.items() if one.kind == kind] for kind in Rating.Kind.values}
    return Material(keys["practice"], items, keys["check"], {key: one.item_id for key, one in drawn.items()})


def list_practice_and_checks(queue: RatingQueue) -> tuple[list[Item], list[Item]]:
    """Return the practice items and the attention checks. Everybody rates them, and they never count."""
    checks = list(queue.dataset.items.active().filter(key__in=queue.attention_checks))
    ordinary = queue.dataset.items.active().exclude(key__in=queue.attention_checks)
    return list(ordinary.order_by("position", "pk")[: queue.practice_items]), checks


def list_rated_items(queue: RatingQueue) -> Any:
    """Return the items whose ratings count."""
    practice, checks = list_practice_and_checks(queue)
    rated = queue.dataset.items.active().exclude(pk__in=[item.pk for item in (*practice, *checks)])
    return rated.filter(key__in=queue.only_items) if queue.only_items else rated


def list_rated_keys(queue: RatingQueue) -> list[int]:
    """Return the keys of the items, or of the drawn answers or pairs, whose ratings count."""
    if queue.rates_answers:
        kept = RatedAnswer.objects.filter(queue=queue, kind=Rating.Kind.ITEM)
        return list(kept.values_list("pk", flat=True))
    return list(list_rated_items(queue).values_list("pk", flat=True))


def _missing(queue: RatingQueue, aspects: list[Aspect]) -> dict[int, int]:
    """Return how many raters each item, answer or pair still needs, on the aspect with the most raters so far."""
    laid_out = Rating.objects.filter(assignment__queue=queue, assignment__excluded_at=None, kind=Rating.Kind.ITEM)
    keys = {frozenset((one.trial_id, one.rival_id)): one.pk for one in queue.answers.all()}
    per_cell: Counter[tuple[int, Key]] = Counter(
        (keys[frozenset((trial, rival))] if keys else item, (dimension, criterion))
        for item, trial, rival, dimension, criterion in laid_out.values_list(
            "item", "trial", "rival", "dimension", "criterion"
        )
    )
    return {
        thing: queue.raters_wanted - max(per_cell[thing, aspect.key] for aspect in aspects)
        for thing in list_rated_keys(queue)
    }


# --- rating ----------------------------------------------------------------------------------------------------------


def next_rating(assignment: RaterAssignment) -> Rating | None:
    """Return the next rating: the first in the rater's order without a value."""
    waiting = assignment.ratings.filter(value=None).select_related("item__image", "dimension")
    return waiting.order_by("position").first()


def reached_rating(assignment: RaterAssignment, position: int) -> Rating | None:
    """Return the rating at a position that the rater has reached, or None beyond the next one."""
    here = assignment.ratings.select_related("item__image").filter(position=position).first()
    if here is None or here.value is not None:
        return here
    waiting = next_rating(assignment)
    return here if waiting is not None and waiting.position == position else None


def last_given(assignment: RaterAssignment) -> Rating | None:
    return assignment.ratings.given().order_by("-position").first()


def measure_progress(assignment: RaterAssignment) -> Progress:
    return Progress(assignment.ratings.given().count(), assignment.ratings.count())


def rate(assignment: RaterAssignment, *, position: int, value: float, seconds: float) -> bool:
    """Record the next rating. Return False if `position` is not the next one: a duplicate request or an old page.

    Raise RatingError for a value off the scale, or if the queue is not open.
    """
    waiting = next_rating(assignment)
    if waiting is None or waiting.position != position:
        return False
    if not find_aspect(waiting, assignment.queue).takes(value):
        raise RatingError("That is not on the scale.")
    changed = _update(
        waiting,
        assignment.ratings.filter(pk=waiting.pk, value=None),
        value=value,
        seconds=min(max(0.0, seconds), LONGEST_S),
        rated_at=timezone.now(),
    )
    _finish_if_done(assignment)
    return changed


def undo(assignment: RaterAssignment) -> bool:
    """Take back the last given rating, so that it is next again. Return False if there is none."""
    last = last_given(assignment)
    if last is None:
        return False
    given = assignment.ratings.filter(pk=last.pk, value=last.value, rated_at=last.rated_at)
    changed = _update(last, given, value=None, seconds=None, rated_at=None, revisions=F("revisions") + 1)
    RaterAssignment.objects.filter(pk=assignment.pk).update(finished_at=None)
    return changed


def _update(rating: Rating, ratings: Any, **fields: Any) -> bool:
    """Update this rating if it is still in `ratings`, and update the person's grading. Return whether it changed.

    The database refuses a change in a queue that was closed meanwhile.
    Lock order: the queue's row first, as in every change of ratings. The trigger locks it after the rating's row, so a
    concurrent release of the rater could deadlock otherwise.
    The rater's row is locked too, so that the later of two concurrent requests writes the final grading.
    """
    rater, queue = rating.assignment_id, rating.assignment.queue_id
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM grading_app_ratingqueue WHERE id = %s FOR SHARE", [queue])
            cursor.execute("SELECT 1 FROM grading_app_raterassignment WHERE id = %s FOR NO KEY UPDATE", [rater])
            if changed := bool(ratings.update(**fields)):
                write_grading(rating)
            return changed
    except IntegrityError as error:
        raise RatingError("This is not open for ratings now.") from error


def _finish_if_done(assignment: RaterAssignment) -> None:
    waiting = Rating.objects.filter(assignment=OuterRef("pk"), value=None)
    RaterAssignment.objects.filter(~Exists(waiting), pk=assignment.pk, finished_at=None).update(
        finished_at=timezone.now()
    )
