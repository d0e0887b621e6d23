"""Opening a queue, which draws its answers and approves its dimensions, and joining it by an invitation."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from datasets_app.models import Dataset
from evalsite.lib.history import Actor
from evalsite.lib.permissions import RATER
from evalsite.lib.text.hashing import hash_token
from grading_app.judging.grade_conditions import find_rubric_problems
from grading_app.models import RaterAssignment, RaterInvitation, RatingQueue, Rubric
from grading_app.models.rating import QueueError
from grading_app.rating.answer_draw import AnswerDrawError, draw_answers
from runs_app.models import Dimension


@transaction.atomic
def open_queue(queue: RatingQueue, *, by: Actor, reason: str) -> None:
    """Open the queue, for the first time or again. This freezes the queue and its dimensions permanently."""
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
        locked = RatingQueue.objects.select_for_update().get(pk=queue.pk)
        if locked.status != RatingQueue.Status.DRAFT:
            return  # Another request opened it; the transition below reports that.
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
