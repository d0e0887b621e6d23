"""Opening a queue, which draws its answers and approves its dimensions, and joining it by an invitation.

Answers are drawn once, at the first opening, with a stored seed. No model is preferred: each condition gives the same
number of answers per drawn item, so the raters' means compare conditions. In comparisons, every two conditions meet on
each drawn item. Blank answers are left out, because raters cannot rate them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from random import Random

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from datasets_app.models import Dataset
from evalsite.lib.history import Actor
from evalsite.lib.permissions import RATER
from evalsite.lib.text.hashing import hash_token
from grading_app.grading.judging.grade_conditions import find_rubric_problems
from grading_app.models import RatedAnswer, RaterAssignment, RaterInvitation, Rating, RatingQueue, Rubric
from grading_app.models.rating import QueueError
from runs_app.models import Dimension

MAX_ANSWERS = 20_000

Cell = tuple[int, int, int | None]
"""An item, a condition and the dimension of the answer."""
Unit = tuple[int, int | None, int]
"""An answer, the answer that it is compared with, and their item."""


@transaction.atomic
def open_queue(queue: RatingQueue, *, by: Actor, reason: str) -> None:
    """Open the queue, for the first time or again. This freezes the queue and its dimensions permanently."""
    queue.lock_with_rows()
    queue.refresh_from_db(fields=["status"])
    for problem in find_problems(queue):
        raise QueueError(f"{queue}: {problem}")
    if queue.status == RatingQueue.Status.DRAFT:
        _prepare_rated_units(queue)
    drafts = Dimension.objects.filter(pk__in=queue.dimensions.values("pk"))
    drafts.transition(sources=["draft"], target="approved", by=by, reason=f"people rate on it in {queue}")
    Status = RatingQueue.Status
    RatingQueue.objects.transition_one(
        queue, sources=[Status.DRAFT, Status.CLOSED], target=Status.OPEN, by=by, reason=reason
    )


def find_problems(queue: RatingQueue) -> Iterator[str]:
    """Yield the problems that keep the queue from opening, and how to fix them."""
    if queue.rubric is None:
        if not queue.dimensions.exists():
            yield "it has no questions yet; choose dimensions" + (", or a rubric" if queue.rates_answers else "")
        return
    if queue.dimensions.exists():
        yield f"it has both dimensions and rubric {queue.rubric}; remove one of them"
    if queue.rubric.kind == Rubric.Kind.WRITER:
        yield f"rubric {queue.rubric} writes item rubrics and gives no verdicts; choose another rubric"
    elif queue.experiment is not None:
        yield from find_rubric_problems(
            queue.experiment, queue.rubric, queue.text_set, user_kind="queue", name=queue.name
        )


def _prepare_rated_units(queue: RatingQueue) -> None:
    """Prepare the units to rate before the first rater starts: draw answers, or check that items exist."""
    if queue.rates_answers:
        try:
            draw_answers(queue)
        except AnswerDrawError as error:
            raise QueueError(f"{queue}: {error}") from error
        return
    if queue.dataset.status != Dataset.Status.APPROVED:
        raise QueueError(f"{queue.dataset} is {queue.dataset.status}; only approved datasets can be rated")
    if not queue.select_rated_items().exists():
        raise QueueError(f"{queue} has no item left to rate after practice and attention checks")


def find_usable_invitation(token: str) -> RaterInvitation | None:
    """Return the token's invitation, or None if it is used, expired or for a closed queue."""
    invitations = RaterInvitation.objects.filter(
        token_hash=hash_token(token), used_at=None, expires_at__gt=timezone.now()
    )
    return (
        invitations.exclude(queue__status=RatingQueue.Status.CLOSED).select_related("queue", "assignment__user").first()
    )


@transaction.atomic
def redeem(token: str, alias: str = "") -> RaterAssignment:
    """Use the invitation and return its rater: a new one with this alias, or an existing one, who keeps their alias.

    Raise QueueError if the invitation is not usable.
    """
    RaterInvitation.objects.select_for_update().filter(token_hash=hash_token(token)).first()
    invitation = find_usable_invitation(token)
    if invitation is None:
        raise QueueError("this link was used or has expired")
    assignment = invitation.assignment
    if assignment is None:
        # Create an account without a usable password, with only the rater role.
        user = get_user_model().objects.create_user(f"rater-{secrets.token_hex(6)}")
        user.groups.add(Group.objects.get(name=RATER))
        assignment = invitation.queue.assign(user, by="an invitation", by_link=True, alias=alias)
    else:
        assignment.refuse_other_accounts()
    invitation.assignment, invitation.used_at = assignment, timezone.now()
    invitation.save(update_fields=["assignment", "used_at"])
    return assignment


class AnswerDrawError(ValueError):
    """A design with no answer or too many answers to draw; the message gives the reason."""


def draw_answers(queue: RatingQueue) -> list[RatedAnswer]:
    """Save and return the answers of this queue.

    Practice and check items get one answer each. The other items get the number that the sample sets.
    """
    items = list(queue.dataset.items.active().order_by("position", "pk").values_list("pk", "key"))
    checks = [pk for pk, key in items if key in queue.attention_checks]
    practice = [pk for pk, _ in items if pk not in set(checks)][: queue.practice_items]
    kind_by_item = {**dict.fromkeys(practice, Rating.Kind.PRACTICE), **dict.fromkeys(checks, Rating.Kind.CHECK)}
    first_units = _draw_first_units(queue, list(kind_by_item))
    if unanswered := len(set(kind_by_item) - set(first_units)):
        noun = "two answers to compare" if queue.rates_pairs else "answer"
        raise AnswerDrawError(f"{unanswered} practice or check items have no {noun}")
    answered_items = set(queue.select_answers().values_list("item", flat=True).distinct())
    if queue.only_items:
        answered_items &= {pk for pk, key in items if key in set(queue.only_items)}
    drawn_items = draw_keys(sorted(answered_items - set(kind_by_item)), queue.sample_items, seed=queue.sample_seed)
    units = _draw_units(queue, drawn_items, queue.answers_each)
    if not 0 < len(units) <= MAX_ANSWERS:
        raise AnswerDrawError(_describe_size_problem(len(units), in_pairs=queue.rates_pairs))
    rows = [(unit, Rating.Kind.ITEM) for unit in units]
    rows += [(unit, kind_by_item[item]) for item, unit in first_units.items()]
    return RatedAnswer.objects.bulk_create(
        RatedAnswer(queue=queue, trial_id=trial, rival_id=rival, item_id=item, kind=kind)
        for (trial, rival, item), kind in rows
    )


def _draw_units(queue: RatingQueue, items: Sequence[int], per_cell: int) -> list[Unit]:
    """Return the units to show for these items: answers, or pairs of answers for comparisons."""
    trials = queue.select_answers().filter(item__in=items)
    cells: dict[Cell, list[tuple[int, int]]] = {}
    for pk, item, condition, dimension in trials.values_list("pk", "item", "run__condition", "dimension"):
        cells.setdefault((item, condition, dimension), []).append((pk, item))
    if queue.rates_pairs:
        return draw_pairs(cells, per_cell, seed=queue.sample_seed)
    return [(trial, None, item) for trial, item in draw_single_answers(cells, per_cell, seed=queue.sample_seed)]


def _draw_first_units(queue: RatingQueue, items: Sequence[int]) -> dict[int, Unit]:
    """Return the first unit of each item, by item. Items without a unit are missing."""
    first_units: dict[int, Unit] = {}
    for unit in sorted(_draw_units(queue, items, MAX_ANSWERS), key=lambda unit: (unit[0], unit[1] or 0)):
        first_units.setdefault(unit[2], unit)
    return first_units


def draw_keys(keys: Sequence[int], n: int | None, *, seed: int) -> list[int]:
    """Return n random keys in order, or all keys. The order of `keys` does not matter."""
    ordered = sorted(keys)
    if n is None or n >= len(ordered):
        return ordered
    return sorted(Random(seed).sample(ordered, n))  # noqa: S311 - a sample, not a secret.


def draw_single_answers(
    cells: Mapping[Cell, Sequence[tuple[int, int]]], per_cell: int, *, seed: int
) -> list[tuple[int, int]]:
    """Return at most `per_cell` random (trial, item) pairs of every cell. Each cell has its own seed."""
    draws: list[tuple[int, int]] = []
    for cell in sorted(cells, key=str):
        rng = Random(f"{seed}:{cell}")  # noqa: S311 - as above.
        draws += sorted(rng.sample(sorted(cells[cell]), min(per_cell, len(cells[cell]))))
    return draws


def draw_pairs(cells: Mapping[Cell, Sequence[tuple[int, int]]], per_cell: int, *, seed: int) -> list[Unit]:
    """Return at most `per_cell` random answer pairs for every two conditions that answered the same question."""
    by_item: dict[tuple[int, int | None], list[Cell]] = {}
    for cell in sorted(cells, key=str):
        by_item.setdefault((cell[0], cell[2]), []).append(cell)
    draws = {cell: draw_single_answers({cell: cells[cell]}, per_cell, seed=seed) for cell in cells}
    return [
        (trial, rival, item)
        for (item, _), item_cells in by_item.items()
        for left, right in combinations(item_cells, 2)
        for (trial, _), (rival, _) in zip(draws[left], draws[right], strict=False)
    ]


def _describe_size_problem(n: int, *, in_pairs: bool) -> str:
    if n:
        return f"{n:,} answers are more than {MAX_ANSWERS:,}; draw fewer items"
    if in_pairs:
        return "no item outside practice has answers of two conditions to compare"
    return "no answer is left to rate after practice and attention checks"
