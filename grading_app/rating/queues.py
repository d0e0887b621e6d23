"""The actions of a queue's managers: open and close a queue, invite people, release or exclude a rater.

Each action is one transaction with a history line. Raise TransitionError if the queue has the wrong status.
Raise QueueError if the request is invalid. After an error nothing has changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from datasets_app.models import Dataset
from evalsite.lib.history import Actor, record_changes
from evalsite.lib.permissions import RATER, get_roles
from evalsite.lib.text.hashing import hash_token
from grading_app.judging.grade_conditions import find_rubric_problems
from grading_app.models import RaterAssignment, RaterInvitation, RatingQueue, Rubric
from grading_app.rating.answer_draw import AnswerDrawError, draw_answers
from grading_app.rating.gradings import delete_gradings
from runs_app.models import Dimension

INVITATION_LIFETIME = timedelta(days=14)
MAX_INVITATIONS = 200
MAX_SEED = 2**31 - 1


class QueueError(ValueError):
    """A request that this queue or this rater does not allow; the message gives the reason."""


# --- the queue -------------------------------------------------------------------------------------------------------


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


def close_queue(queue: RatingQueue, *, by: Actor, reason: str) -> None:
    """Close the queue to ratings until it is opened again. Ratings stay."""
    Status = RatingQueue.Status
    RatingQueue.objects.transition_one(queue, sources=[Status.OPEN], target=Status.CLOSED, by=by, reason=reason)


@transaction.atomic
def delete_draft(queue: RatingQueue, *, by: Actor, reason: str) -> None:
    locked = RatingQueue.objects.select_for_update().get(pk=queue.pk)
    if locked.status != RatingQueue.Status.DRAFT:
        raise QueueError(f"{queue} was opened and cannot be deleted; its ratings stay")
    record_changes([(queue, "draft", "deleted")], by=by, reason=reason or queue.name)
    locked.delete()


# --- raters ----------------------------------------------------------------------------------------------------------


@transaction.atomic
def assign(queue: RatingQueue, user: Any, *, by: Actor, by_link: bool = False, alias: str = "") -> RaterAssignment:
    """Add a rater to this queue. Raise QueueError if the user is a rater already, or if the queue is closed."""
    locked = RatingQueue.objects.select_for_update().get(pk=queue.pk)
    if locked.status == RatingQueue.Status.CLOSED:
        raise QueueError(f"{queue} is closed")
    if queue.assignments.filter(user=user).exists():
        raise QueueError(f"{user.get_username()} is already a rater of {queue}")
    number = (queue.assignments.aggregate(last=Max("number"))["last"] or 0) + 1
    seed = secrets.randbelow(MAX_SEED)
    assignment = RaterAssignment.objects.create(
        queue=queue, user=user, number=number, seed=seed, by_link=by_link, alias=alias
    )
    record_changes([(queue, "", str(assignment))], by=by, reason="", aspect="rater")
    return assignment


@transaction.atomic
def release(assignment: RaterAssignment, *, by: Actor, reason: str) -> None:
    """End a rater's session early. Their ratings count, and other raters can rate the rest."""
    _lock_queue(assignment)
    if not assignment.started_at:
        raise QueueError(f"{assignment} has not started")
    if not assignment.ratings.exists():
        raise QueueError(f"{assignment} has nothing to rate")
    freed, _ = assignment.ratings.filter(value=None).delete()
    RaterAssignment.objects.filter(pk=assignment.pk, finished_at=None).update(finished_at=timezone.now())
    record_changes([(assignment.queue, "", f"{assignment}, {freed} freed")], by=by, reason=reason, aspect="released")


@transaction.atomic
def exclude(assignment: RaterAssignment, *, by: Actor, reason: str) -> None:
    """Exclude a rater permanently: none of their ratings count, and other raters may replace them. The rows stay.

    A rater who has not started can no longer start.
    """
    if not reason.strip():
        raise QueueError("enter a reason for the exclusion")
    _lock_queue(assignment)
    assignment.ratings.filter(value=None).delete()
    RaterAssignment.objects.filter(pk=assignment.pk).update(excluded_at=timezone.now())
    record_changes([(assignment.queue, "", str(assignment))], by=by, reason=reason, aspect="excluded")
    n_deleted, experiment = delete_gradings(assignment), assignment.queue.experiment
    if n_deleted and experiment is not None:
        summary = f"{n_deleted} verdicts of {assignment} in {assignment.queue} no longer count"
        record_changes([(experiment, "", summary)], by=by, reason=reason, aspect="gradings")


def _lock_queue(assignment: RaterAssignment) -> None:
    """Lock the queue. Raise QueueError if the rater is already excluded."""
    RatingQueue.objects.select_for_update().get(pk=assignment.queue_id)
    assignment.refresh_from_db()
    if assignment.excluded_at:
        raise QueueError(f"{assignment} is already excluded")


# --- invitations -----------------------------------------------------------------------------------------------------


@transaction.atomic
def invite(queue: RatingQueue, count: int, *, by: Any) -> list[str]:
    """Create invitations and return their tokens. Only hashes are stored, so the tokens cannot be shown again."""
    if not 1 <= count <= MAX_INVITATIONS:
        raise QueueError(f"create between 1 and {MAX_INVITATIONS} links at a time")
    tokens = [secrets.token_urlsafe(32) for _ in range(count)]
    RaterInvitation.objects.bulk_create(_build_invitation(queue, token, by) for token in tokens)
    record_changes([(queue, "", f"{count} links")], by=by, reason="", aspect="invited")
    return tokens


@transaction.atomic
def invite_again(assignment: RaterAssignment, *, by: Any) -> str:
    """Return a new link for a rater who joined by link and lost access. This rater's unused links expire."""
    _refuse_other_accounts(assignment)
    token = secrets.token_urlsafe(32)
    assignment.invitations.filter(used_at=None).update(expires_at=timezone.now())
    _build_invitation(assignment.queue, token, by, assignment).save()
    record_changes([(assignment.queue, "", str(assignment))], by=by, reason="", aspect="invited again")
    return token


def _build_invitation(
    queue: RatingQueue, token: str, by: Any, assignment: RaterAssignment | None = None
) -> RaterInvitation:
    return RaterInvitation(
        queue=queue,
        assignment=assignment,
        token_hash=hash_token(token),
        created_by=by,
        expires_at=timezone.now() + INVITATION_LIFETIME,
    )


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
        assignment = assign(invitation.queue, user, by="an invitation", by_link=True, alias=alias)
    else:
        _refuse_other_accounts(assignment)
    invitation.assignment, invitation.used_at = assignment, timezone.now()
    invitation.save(update_fields=["assignment", "used_at"])
    return assignment


def _refuse_other_accounts(assignment: RaterAssignment) -> None:
    """Raise QueueError unless a link created this account and nothing was added to it since.

    A link signs in without a password, so it must never open any other account.
    """
    user = assignment.user
    has_link_account = assignment.by_link and not user.has_usable_password() and get_roles(user) == {RATER}
    if not has_link_account or user.is_staff or user.is_superuser or assignment.excluded_at:
        raise QueueError(f"{assignment} signs in with their own account")
