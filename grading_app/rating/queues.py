"""What those who ask for ratings do: open and close a queue, ask people in, let a rater go.

Each verb is one transaction with its line of history. TransitionError where the queue is in the wrong state, QueueError
where what was asked makes no sense; either way nothing was changed.
"""

from __future__ import annotations

import hashlib
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
from datasets_app.models.history import Actor, record_changes
from evalsite.lib.permissions import RATER, roles_of
from grading_app.judging.grade_conditions import rubric_problems
from grading_app.models import RaterAssignment, RaterInvitation, RatingQueue, Rubric
from grading_app.rating.answer_draw import DrawingError, draw_answers
from grading_app.rating.gradings import forget_all
from grading_app.rating.session import rated_items
from runs_app.models import Dimension

INVITATION_LASTS = timedelta(days=14)
MOST_INVITATIONS = 200
LARGEST_SEED = 2**31 - 1


class QueueError(ValueError):
    """What was asked cannot be done with this queue or this rater; the message says why."""


# --- the queue -------------------------------------------------------------------------------------------------------


@transaction.atomic
def open_queue(queue: RatingQueue, *, by: Actor, reason: str) -> None:
    """Let raters in, for the first time or again. Freezes the queue, and its dimensions, for ever."""
    for problem in problems_with(queue):
        raise QueueError(f"{queue}: {problem}")
    if queue.status == RatingQueue.Status.DRAFT:
        _see_what_is_rated(queue)
    drafts = Dimension.objects.filter(pk__in=queue.dimensions.values("pk"))
    drafts.transition(sources=["draft"], target="approved", by=by, reason=f"people rate on it in {queue}")
    Status = RatingQueue.Status
    RatingQueue.objects.transition_one(
        queue, sources=[Status.DRAFT, Status.CLOSED], target=Status.OPEN, by=by, reason=reason
    )


def problems_with(queue: RatingQueue) -> Iterator[str]:
    """What keeps a queue from asking, as sentences that name what to mend."""
    if queue.rubric is None:
        if not queue.dimensions.exists():
            yield "it asks for nothing yet; choose dimensions" + (", or a rubric" if queue.rates_answers else "")
        return
    if queue.dimensions.exists():
        yield f"it names dimensions and rubric {queue.rubric}; keep one of them"
    if queue.rubric.kind == Rubric.Kind.WRITER:
        yield f"rubric {queue.rubric} writes rubrics of items; it asks for no verdict"
    elif queue.experiment is not None:
        yield from rubric_problems(queue.experiment, queue.rubric, queue.text_set, whom="queue", name=queue.name)


def _see_what_is_rated(queue: RatingQueue) -> None:
    """Of answers, draw them: what is asked is settled before the first rater comes."""
    if queue.rates_answers:
        locked = RatingQueue.objects.select_for_update().get(pk=queue.pk)
        if locked.status != RatingQueue.Status.DRAFT:
            return  # Somebody else has just opened it; the transition below says so.
        try:
            draw_answers(queue)
        except DrawingError as error:
            raise QueueError(f"{queue}: {error}") from error
        return
    if queue.dataset.status != Dataset.Status.APPROVED:
        raise QueueError(f"{queue.dataset} is {queue.dataset.status}; people rate approved datasets")
    if not rated_items(queue).exists():
        raise QueueError(f"{queue} leaves no item to rate beside practice and attention checks")


def close_queue(queue: RatingQueue, *, by: Actor, reason: str) -> None:
    """No more ratings, until it is opened again. What was rated stays."""
    Status = RatingQueue.Status
    RatingQueue.objects.transition_one(queue, sources=[Status.OPEN], target=Status.CLOSED, by=by, reason=reason)


@transaction.atomic
def delete_draft(queue: RatingQueue, *, by: Actor, reason: str) -> None:
    locked = RatingQueue.objects.select_for_update().get(pk=queue.pk)
    if locked.status != RatingQueue.Status.DRAFT:
        raise QueueError(f"{queue} was open: its ratings stay")
    record_changes([(queue, "draft", "deleted")], by=by, reason=reason or queue.name)
    locked.delete()


# --- raters ----------------------------------------------------------------------------------------------------------


@transaction.atomic
def assign(queue: RatingQueue, user: Any, *, by: Actor, by_link: bool = False, alias: str = "") -> RaterAssignment:
    """Make somebody a rater of this queue. QueueError where they are one already, or the queue is closed."""
    locked = RatingQueue.objects.select_for_update().get(pk=queue.pk)
    if locked.status == RatingQueue.Status.CLOSED:
        raise QueueError(f"{queue} is closed")
    if queue.assignments.filter(user=user).exists():
        raise QueueError(f"{user.get_username()} is a rater of {queue} already")
    number = (queue.assignments.aggregate(last=Max("number"))["last"] or 0) + 1
    seed = secrets.randbelow(LARGEST_SEED)
    assignment = RaterAssignment.objects.create(
        queue=queue, user=user, number=number, seed=seed, by_link=by_link, alias=alias
    )
    record_changes([(queue, "", str(assignment))], by=by, reason="", what="rater")
    return assignment


@transaction.atomic
def release(assignment: RaterAssignment, *, by: Actor, reason: str) -> None:
    """Let a rater stop early: what they rated counts, the rest is free for others."""
    _held(assignment)
    if not assignment.started_at:
        raise QueueError(f"{assignment} has not started")
    if not assignment.ratings.exists():
        raise QueueError(f"{assignment} has nothing to rate")
    freed, _ = assignment.ratings.filter(value=None).delete()
    RaterAssignment.objects.filter(pk=assignment.pk, finished_at=None).update(finished_at=timezone.now())
    record_changes([(assignment.queue, "", f"{assignment}, {freed} freed")], by=by, reason=reason, what="released")


@transaction.atomic
def exclude(assignment: RaterAssignment, *, by: Actor, reason: str) -> None:
    """Count nothing of what a rater did, for ever: others may rate it instead. The ratings stay as rows.

    Whoever has not begun never will.
    """
    if not reason.strip():
        raise QueueError("say why the rater is excluded")
    _held(assignment)
    assignment.ratings.filter(value=None).delete()
    RaterAssignment.objects.filter(pk=assignment.pk).update(excluded_at=timezone.now())
    record_changes([(assignment.queue, "", str(assignment))], by=by, reason=reason, what="excluded")
    gone, experiment = forget_all(assignment), assignment.queue.experiment
    if gone and experiment is not None:
        told = f"{gone} verdicts of {assignment} in {assignment.queue} count no more"
        record_changes([(experiment, "", told)], by=by, reason=reason, what="gradings")


def _held(assignment: RaterAssignment) -> None:
    """Lock the queue, then see that the rater is one that counts."""
    RatingQueue.objects.select_for_update().get(pk=assignment.queue_id)
    assignment.refresh_from_db()
    if assignment.excluded_at:
        raise QueueError(f"{assignment} is excluded already")


# --- invitations -----------------------------------------------------------------------------------------------------


@transaction.atomic
def invite(queue: RatingQueue, count: int, *, by: Any) -> list[str]:
    """Tokens of new invitations: they are told now, and never again."""
    if not 1 <= count <= MOST_INVITATIONS:
        raise QueueError(f"between 1 and {MOST_INVITATIONS} links at a time")
    tokens = [secrets.token_urlsafe(32) for _ in range(count)]
    RaterInvitation.objects.bulk_create(_invitation(queue, token, by) for token in tokens)
    record_changes([(queue, "", f"{count} links")], by=by, reason="", what="invited")
    return tokens


@transaction.atomic
def invite_again(assignment: RaterAssignment, *, by: Any) -> str:
    """A new link for a rater who came by one and lost the way back; earlier unused links of theirs end."""
    _refuse_other_accounts(assignment)
    token = secrets.token_urlsafe(32)
    assignment.invitations.filter(used_at=None).update(expires_at=timezone.now())
    _invitation(assignment.queue, token, by, assignment).save()
    record_changes([(assignment.queue, "", str(assignment))], by=by, reason="", what="invited again")
    return token


def _invitation(queue: RatingQueue, token: str, by: Any, assignment: RaterAssignment | None = None) -> RaterInvitation:
    return RaterInvitation(
        queue=queue,
        assignment=assignment,
        token_hash=hash_of(token),
        created_by=by,
        expires_at=timezone.now() + INVITATION_LASTS,
    )


def hash_of(token: str) -> str:
    """Tokens are long and random: a plain hash of one tells nothing."""
    return hashlib.sha256(token.encode()).hexdigest()


def usable(token: str) -> RaterInvitation | None:
    """The invitation of this token, where it is neither used nor too old nor to a closed queue."""
    found = RaterInvitation.objects.filter(token_hash=hash_of(token), used_at=None, expires_at__gt=timezone.now())
    return found.exclude(queue__status=RatingQueue.Status.CLOSED).select_related("queue", "assignment__user").first()


@transaction.atomic
def redeem(token: str, alias: str = "") -> RaterAssignment:
    """Use an invitation up: the rater it makes, under this alias, or the rater it is for, who keeps theirs.

    QueueError where it is not usable.
    """
    RaterInvitation.objects.select_for_update().filter(token_hash=hash_of(token)).first()
    invitation = usable(token)
    if invitation is None:
        raise QueueError("this link was used, or is too old")
    assignment = invitation.assignment
    if assignment is None:
        assignment = assign(invitation.queue, _new_rater(), by="an invitation", by_link=True, alias=alias)
    else:
        _refuse_other_accounts(assignment)
    invitation.assignment, invitation.used_at = assignment, timezone.now()
    invitation.save(update_fields=["assignment", "used_at"])
    return assignment


def _new_rater() -> Any:
    """An account that nobody can sign in to with a password, with the one role."""
    user = get_user_model().objects.create_user(f"rater-{secrets.token_hex(6)}")
    user.groups.add(Group.objects.get(name=RATER))
    return user


def _refuse_other_accounts(assignment: RaterAssignment) -> None:
    """A link signs in without a password: only ever to an account that links made, and that nothing was added to."""
    user = assignment.user
    made_by_link = assignment.by_link and not user.has_usable_password() and roles_of(user) == {RATER}
    if not made_by_link or user.is_staff or user.is_superuser or assignment.excluded_at:
        raise QueueError(f"{assignment} signs in with an account of their own")
