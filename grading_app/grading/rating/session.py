"""A rater's session: the order of units, and the actions start, rate and undo.

The session can be resumed after every step, on any device. The same seed gives the same order. Ratings by a rubric
become the grading of an equal judge's verdict: `parse_verdict` computes both scores, so people and judges can be
compared per criterion and in total. Practice and attention checks produce no gradings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from grading_app.grading.judging.verdicts import Verdict, parse_verdict
from grading_app.grading.rating.questions import Key, RaterQuestion, find_question, list_questions
from grading_app.models import (
    Grading,
    Preference,
    RatedAnswer,
    RaterAssignment,
    Rating,
    RatingQueue,
    Rubric,
)
from grading_app.models.gradings import allow_superseding

Kind = Literal["practice", "item", "check"]
MAX_RATING_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Step:
    """One item or answer to rate on one question, given by its index. Steps come in session order."""

    item: int
    question: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class SessionItems:
    """Keys of practice (in this order), of rated units, and of attention checks. No key occurs twice.

    `groups` maps a key to its group (the answers to one item). Keys of one group are not shown in a row.
    """

    practice: Sequence[int]
    items: Sequence[int]
    checks: Sequence[int]
    groups: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.items

    def order_steps(self, questions: Sequence[int], *, seed: int, in_blocks: bool) -> list[Step]:
        """Return the steps: practice first, then the items in random order with the checks spread among them.

        With `in_blocks`, each question (a dimension, a criterion) has its own practice and its own order.
        Otherwise each item is rated on all questions, in the given order, before the next item.
        """
        rng = Random(seed)  # noqa: S311 - the order of a study, not a secret.
        if not in_blocks:
            return list(_cross_with_questions(self._order_items(rng), questions))
        return [step for question in questions for step in _cross_with_questions(self._order_items(rng), [question])]

    def _order_items(self, rng: Random) -> list[tuple[int, Kind]]:
        practice: list[tuple[int, Kind]] = [(item, "practice") for item in self.practice]
        items = _shuffle(self.items, rng)
        if self.groups:
            items = shuffle_with_spacing(items, self.groups, rng)
        # Insert one check at a random position in each of equal segments of the items, never before the first item.
        checks = _shuffle(self.checks, rng)
        mixed: list[tuple[int, Kind]] = [(item, "item") for item in items]
        segment = len(items) / max(1, len(checks))
        positions = [int(segment * index + rng.random() * segment) + 1 for index in range(len(checks))]
        for position, check in sorted(zip(positions, checks, strict=True), reverse=True):
            mixed.insert(position, (check, "check"))
        return practice + mixed


def shuffle_with_spacing(shuffled: Sequence[int], groups: Mapping[int, int], rng: Random) -> list[int]:
    """Return the keys in another random order that separates keys of one group as far as possible.

    Each key is drawn from the remaining keys outside the last key's group. A group with more than half of the remaining
    keys comes every other time; otherwise it could not be separated.
    """
    keys_by_group: dict[int, list[int]] = {}
    for key in reversed(shuffled):
        keys_by_group.setdefault(groups.get(key, key), []).append(key)
    remaining = Counter({group: len(keys) for group, keys in keys_by_group.items()})
    order: list[int] = []
    last: int | None = None
    while remaining:
        last = _choose_next_group(remaining, last, rng)
        order.append(keys_by_group[last].pop())
        remaining[last] -= 1
        if not remaining[last]:
            del remaining[last]
    return order


def _choose_next_group(remaining: Counter[int], last: int | None, rng: Random) -> int:
    (largest, count), total = remaining.most_common(1)[0], remaining.total()
    if largest != last and 2 * count > total:
        return largest
    groups = [group for group in remaining if group != last] or [largest]
    return rng.choices(groups, [remaining[group] for group in groups])[0]


def _cross_with_questions(session: Sequence[tuple[int, Kind]], questions: Sequence[int]) -> Iterator[Step]:
    for item, kind in session:
        for question in questions:
            yield Step(item, question, kind)


def _shuffle(keys: Sequence[int], rng: Random) -> list[int]:
    """Return the keys shuffled. Sorting first makes the result independent of the row order."""
    order = sorted(keys)
    rng.shuffle(order)
    return order


def choose_by_demand(missing: Mapping[int, int], *, limit: int | None, seed: int) -> list[int]:
    """Return the items for a new rater: those with the most missing ratings first, ties in random order.

    `missing` maps each item to the number of raters that it still needs. Items that need no rater are left out.
    """
    rng = Random(seed)  # noqa: S311 - as above.
    open_items = _shuffle([item for item, count in missing.items() if count > 0], rng)
    return sorted(open_items, key=lambda item: -missing[item])[:limit]


def order_pair(pair: tuple[int, int], *, seed: int, key: int) -> tuple[int, int]:
    """Return the two answers in the order that one rater sees: random per rater and pair."""
    rng = Random(f"{seed}:{key}")  # noqa: S311 - as above.
    return pair if rng.random() < 0.5 else (pair[1], pair[0])


def find_least_used(counts: Mapping[int, int]) -> int:
    """Return the dimension with the fewest raters; on a tie, the first in the given order."""
    return min(counts, key=lambda dimension: counts[dimension])


class RatingError(ValueError):
    """A rating that cannot be recorded; the message is for the rater, and nothing has changed."""


# --- starting --------------------------------------------------------------------------------------------------------


def start_session(assignment: RaterAssignment) -> bool:
    """Create this rater's session if it does not exist yet. Return False if no item needs another rater.

    The queue's row is locked, so raters who start at once never give an item more raters than it needs.
    """
    with transaction.atomic():
        queue = RatingQueue.objects.select_for_update().get(pk=assignment.queue_id)
        assignment.refresh_from_db()
        if assignment.started_at:
            return True
        if not queue.is_open or assignment.excluded_at:
            raise RatingError("This study is not open for ratings.")
        questions = _choose_questions(queue, assignment)
        answers_by_key = {answer.pk: answer for answer in queue.answers.order_by("item__position", "pk")}
        session_items = _select_session_items(queue, assignment, questions, answers_by_key)
        if session_items.is_empty:
            return False
        indexes = range(len(questions))
        order = session_items.order_steps(indexes, seed=assignment.seed, in_blocks=queue.in_blocks)
        _insert_ratings(assignment, [(step, questions[step.question]) for step in order], answers_by_key)
    return True


def _insert_ratings(
    assignment: RaterAssignment, order: list[tuple[Step, RaterQuestion]], answers_by_key: dict[int, RatedAnswer]
) -> None:
    """Insert one rating row per step, for an item or for a drawn answer."""
    Rating.objects.bulk_create(
        Rating(
            assignment=assignment,
            **_choose_shown_answers(assignment, step.item, answers_by_key),
            dimension_id=question.key[0],
            criterion=question.key[1],
            kind=step.kind,
            position=position,
        )
        for position, (step, question) in enumerate(order, start=1)
    )
    assignment.started_at = timezone.now()
    assignment.save(update_fields=["started_at", "dimension"])


def _choose_shown_answers(
    assignment: RaterAssignment, key: int, answers_by_key: dict[int, RatedAnswer]
) -> dict[str, int | None]:
    """Return the fields that a step shows: the item, an answer to it, or two answers in this rater's order."""
    if not answers_by_key:
        return {"item_id": key}
    answer = answers_by_key[key]
    if answer.rival_id is None:
        return {"item_id": answer.item_id, "trial_id": answer.trial_id}
    first, second = order_pair((answer.trial_id, answer.rival_id), seed=assignment.seed, key=key)
    return {"item_id": answer.item_id, "trial_id": first, "rival_id": second}


def _choose_questions(queue: RatingQueue, assignment: RaterAssignment) -> list[RaterQuestion]:
    """Return all questions, or the one dimension with the fewest raters that still needs raters."""
    questions = list_questions(queue)
    if not queue.one_dimension_per_rater:
        return questions
    open_questions = [
        question
        for question in questions
        if any(count > 0 for count in _count_missing_raters(queue, [question]).values())
    ]
    if not open_questions:
        return questions[:1]
    raters = queue.assignments.counted().exclude(started_at=None).values_list("dimension", flat=True)
    used: Counter[int | None] = Counter(raters)
    index = find_least_used({index: used[question.key[0]] for index, question in enumerate(open_questions)})
    assignment.dimension_id = open_questions[index].key[0]
    return [open_questions[index]]


def _select_session_items(
    queue: RatingQueue,
    assignment: RaterAssignment,
    questions: list[RaterQuestion],
    answers: dict[int, RatedAnswer],
) -> SessionItems:
    items = choose_by_demand(_count_missing_raters(queue, questions), limit=queue.items_per_rater, seed=assignment.seed)
    if not queue.rates_answers:
        practice, checks = queue.list_practice_and_checks()
        return SessionItems([item.pk for item in practice], items, [item.pk for item in checks])
    keys = {kind: [key for key, answer in answers.items() if answer.kind == kind] for kind in Rating.Kind.values}
    return SessionItems(
        keys["practice"], items, keys["check"], {key: answer.item_id for key, answer in answers.items()}
    )


def _count_missing_raters(queue: RatingQueue, questions: list[RaterQuestion]) -> dict[int, int]:
    """Return how many raters each item, answer or pair still needs, on the question with the most raters so far."""
    ratings = Rating.objects.filter(assignment__queue=queue, assignment__excluded_at=None, kind=Rating.Kind.ITEM)
    keys = {frozenset((answer.trial_id, answer.rival_id)): answer.pk for answer in queue.answers.all()}
    per_cell: Counter[tuple[int, Key]] = Counter(
        (keys[frozenset((trial, rival))] if keys else item, (dimension, criterion))
        for item, trial, rival, dimension, criterion in ratings.values_list(
            "item", "trial", "rival", "dimension", "criterion"
        )
    )
    return {
        unit: queue.raters_wanted - max(per_cell[unit, question.key] for question in questions)
        for unit in queue.list_rated_keys()
    }


# --- rating ----------------------------------------------------------------------------------------------------------


def rate(assignment: RaterAssignment, *, position: int, value: float, seconds: float) -> bool:
    """Record the next rating. Return False if `position` is not the next one: a duplicate request or an old page.

    Raise RatingError for a value off the scale, or if the queue is not open.
    """
    due = assignment.find_next_rating()
    if due is None or due.position != position:
        return False
    if not find_question(due, assignment.queue).accepts(value):
        raise RatingError("This value is not on the scale.")
    changed = _update_rating(
        due,
        assignment.ratings.filter(pk=due.pk, value=None),
        value=value,
        seconds=min(max(0.0, seconds), MAX_RATING_S),
        rated_at=timezone.now(),
    )
    # The rater is done if no rating is due.
    still_due = Rating.objects.filter(assignment=OuterRef("pk"), value=None)
    unfinished = RaterAssignment.objects.filter(~Exists(still_due), pk=assignment.pk, finished_at=None)
    unfinished.update(finished_at=timezone.now())
    return changed


def undo(assignment: RaterAssignment) -> bool:
    """Take back the last given rating, so that it is next again. Return False if there is none."""
    last = assignment.find_last_rating()
    if last is None:
        return False
    given = assignment.ratings.filter(pk=last.pk, value=last.value, rated_at=last.rated_at)
    changed = _update_rating(last, given, value=None, seconds=None, rated_at=None, revisions=F("revisions") + 1)
    RaterAssignment.objects.filter(pk=assignment.pk).update(finished_at=None)
    return changed


def _update_rating(rating: Rating, ratings: Any, **fields: Any) -> bool:
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
        raise RatingError("This study is not open for ratings.") from error


def write_grading(rating: Rating) -> None:
    """Write the grading of this person for this answer, or delete it while a criterion has no rating.

    Call this in the transaction that changed the rating, which locks the rater's row.
    """
    queue = rating.assignment.queue
    if queue.rubric is None or rating.kind != Rating.Kind.ITEM:
        return
    verdict = _build_verdict(rating, queue, queue.rubric)
    with allow_superseding():
        if verdict is None:
            by_rater = {"condition__assignment": rating.assignment_id}
            Grading.objects.filter(**by_rater, trial=rating.trial).delete()
            Preference.objects.filter(**by_rater, trial_a=rating.trial, trial_b=rating.rival).delete()
        elif queue.rates_pairs:
            Preference.objects.update_or_create(
                condition=rating.assignment.get_or_create_condition(),
                trial_a=rating.trial,
                trial_b=rating.rival,
                defaults={"winner": verdict.winner, "parse_error": verdict.error},
            )
        else:
            fields = {"score": verdict.score, "score_raw": verdict.raw, "detail": verdict.detail}
            Grading.objects.update_or_create(
                condition=rating.assignment.get_or_create_condition(),
                trial=rating.trial,
                defaults={**fields, "parse_ok": not verdict.error, "parse_error": verdict.error},
            )


def _build_verdict(rating: Rating, queue: RatingQueue, rubric: Rubric) -> Verdict | None:
    """Return the verdict, or None until every question of the rubric has a rating."""
    unit_ratings = Rating.objects.filter(assignment=rating.assignment_id, trial=rating.trial_id, rival=rating.rival_id)
    values = {criterion: value or 0.0 for criterion, value in unit_ratings.given().values_list("criterion", "value")}
    if len(values) < len(list_questions(queue)):
        return None
    return parse_verdict(rubric.build_verdict_object(values), rubric.content)
