"""The raters of a queue: their assignments, and the invitations that create them."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any, Self

from django.conf import settings
from django.db import models, transaction
from django.utils import timezone

from evalsite.lib.constraints import SIGNED, constrain_numbers
from evalsite.lib.history import Actor, HasHistory, record_changes
from evalsite.lib.permissions import RATER, get_roles
from evalsite.lib.text.hashing import build_condition_id, hash_token, slugify_name
from grading_app.models.gradings import GradeCondition, Grading, Preference, allow_superseding
from grading_app.models.rating import INVITATION_LIFETIME, QueueError, Rating, RatingQueue
from runs_app.models import Dimension


class RaterAssignmentQuerySet(models.QuerySet["RaterAssignment"]):
    def for_user(self, user: Any) -> Self:
        """Return the assignments of this user in open queues, unless the rater was excluded."""
        return self.filter(user=user, excluded_at=None, queue__status=RatingQueue.Status.OPEN)

    def counted(self) -> Self:
        """Return the assignments whose ratings count: those of raters who were not excluded."""
        return self.filter(excluded_at=None)


@dataclass(frozen=True, slots=True)
class Progress:
    """A rater's progress: the ratings given so far, out of all that are requested."""

    done: int
    total: int

    @property
    def percent(self) -> int:
        return math.floor(100 * self.done / self.total) if self.total else 0


@constrain_numbers(seed=SIGNED)
class RaterAssignment(HasHistory, models.Model):
    """One person in one queue, identified there by a number."""

    queue = models.ForeignKey(RatingQueue, on_delete=models.CASCADE, related_name="assignments")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="rating_assignments")
    number = models.PositiveIntegerField()
    by_link = models.BooleanField(
        default=False, help_text="The account was created by an invitation, for this queue only"
    )
    alias = models.CharField(
        max_length=40, blank=True, default="", db_default="", help_text="The pseudonym of a rater who joined by link"
    )
    dimension = models.ForeignKey(Dimension, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    seed = models.BigIntegerField(help_text="The seed of this rater's order")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    excluded_at = models.DateTimeField(null=True, blank=True)

    objects = RaterAssignmentQuerySet.as_manager()

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["queue", "user"], name="rater_once_a_queue"),
            models.UniqueConstraint(fields=["queue", "number"], name="rater_number_in_queue"),
        ]

    def __str__(self) -> str:
        return f"rater {self.number}"

    @property
    def progress(self) -> Progress:
        return Progress(self.ratings.given().count(), self.ratings.count())

    def find_next_rating(self) -> Rating | None:
        """Return the next rating: the first in the rater's order without a value."""
        due = self.ratings.filter(value=None).select_related("item__image", "dimension")
        return due.order_by("position").first()

    def find_reached_rating(self, position: int) -> Rating | None:
        """Return the rating at a position that the rater has reached, or None beyond the next one."""
        rating = self.ratings.select_related("item__image").filter(position=position).first()
        if rating is None or rating.value is not None:
            return rating
        due = self.find_next_rating()
        return rating if due is not None and due.position == position else None

    def find_last_rating(self) -> Rating | None:
        """Return the given rating that is last in the rater's order."""
        return self.ratings.given().order_by("-position").first()

    def lock_queue(self) -> None:
        """Lock the queue. Raise QueueError if its rows are in a file, or if the rater is already excluded."""
        self.queue.lock_with_rows()
        self.refresh_from_db()
        if self.excluded_at:
            raise QueueError(f"{self} is already excluded")

    @transaction.atomic
    def release(self, *, by: Actor, reason: str) -> None:
        """End a rater's session early. Their ratings count, and other raters can rate the rest."""
        self.lock_queue()
        if not self.started_at:
            raise QueueError(f"{self} has not started")
        if not self.ratings.exists():
            raise QueueError(f"{self} has nothing to rate")
        freed, _ = self.ratings.filter(value=None).delete()
        RaterAssignment.objects.filter(pk=self.pk, finished_at=None).update(finished_at=timezone.now())
        record_changes([(self.queue, "", f"{self}, {freed} freed")], by=by, reason=reason, aspect="released")

    @transaction.atomic
    def exclude(self, *, by: Actor, reason: str) -> None:
        """Exclude a rater permanently: none of their ratings count, and other raters may replace them. The rows stay.

        A rater who has not started can no longer start.
        """
        if not reason.strip():
            raise QueueError("enter a reason for the exclusion")
        self.lock_queue()
        self.ratings.filter(value=None).delete()
        RaterAssignment.objects.filter(pk=self.pk).update(excluded_at=timezone.now())
        record_changes([(self.queue, "", str(self))], by=by, reason=reason, aspect="excluded")
        n_deleted, experiment = self.delete_gradings(), self.queue.experiment
        if n_deleted and experiment is not None:
            summary = f"{n_deleted} verdicts of {self} in {self.queue} no longer count"
            record_changes([(experiment, "", summary)], by=by, reason=reason, aspect="gradings")

    def refuse_other_accounts(self) -> None:
        """Raise QueueError unless a link created this account and nothing was added to it since.

        A link signs in without a password, so it must never open any other account.
        """
        user = self.user
        has_link_account = self.by_link and not user.has_usable_password() and get_roles(user) == {RATER}
        if not has_link_account or user.is_staff or user.is_superuser or self.excluded_at:
            raise QueueError(f"{self} signs in with their own account")

    @transaction.atomic
    def invite_again(self, *, by: Any) -> str:
        """Return a new link for a rater who joined by link and lost access. This rater's unused links expire."""
        self.refuse_other_accounts()
        token = secrets.token_urlsafe(32)
        self.invitations.filter(used_at=None).update(expires_at=timezone.now())
        self.invitations.create(
            queue=self.queue,
            token_hash=hash_token(token),
            created_by=by,
            expires_at=timezone.now() + INVITATION_LIFETIME,
        )
        record_changes([(self.queue, "", str(self))], by=by, reason="", aspect="invited again")
        return token

    def delete_gradings(self) -> int:
        """Delete all gradings and preferences from this person's ratings. Return their number. The ratings stay."""
        by_rater = {"condition__assignment": self}
        with allow_superseding():
            n_gradings, _ = Grading.objects.filter(**by_rater).delete()
            n_preferences, _ = Preference.objects.filter(**by_rater).delete()
        return n_gradings + n_preferences

    def get_or_create_condition(self) -> GradeCondition:
        """Return this rater's grade condition in this queue, creating it if needed."""
        queue = self.queue
        if queue.rubric is None or queue.experiment is None:
            raise ValueError(f"{queue} has no rubric")
        rubric, experiment = queue.rubric, queue.experiment
        content = {"kind": "person", "rubric": rubric.content, "queue": queue.name, "rater": self.number}
        if queue.text_set is not None:
            content["texts"] = queue.text_set.content_hash
        condition, _ = GradeCondition.objects.get_or_create(
            assignment=self,
            defaults={
                "experiment": experiment,
                "grade_condition_id": build_condition_id(slugify_name(f"{queue.name}-rater-{self.number}"), content),
                "kind": GradeCondition.Kind.PERSON,
                "rubric": rubric,
                "parameters": {"queue": queue.name, "rater": self.number},
            },
        )
        return condition


@constrain_numbers()
class RaterInvitation(models.Model):
    """A link that creates a rater, usable once. The database stores only the hash of its token."""

    queue = models.ForeignKey(RatingQueue, on_delete=models.CASCADE, related_name="invitations")
    # A first link gets its assignment when it is used. A further link of an existing rater has it from the start.
    assignment = models.ForeignKey(
        RaterAssignment, on_delete=models.CASCADE, null=True, blank=True, related_name="invitations"
    )
    token_hash = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return f"invitation {self.pk} to {self.queue_id}"
