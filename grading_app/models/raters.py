"""The raters of a queue: their assignments, and the invitations that create them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

from django.conf import settings
from django.db import models

from evalsite.lib.history import StatusChange
from evalsite.lib.range_constraints import SIGNED, constrain_numbers
from grading_app.models.rating import Rating, RatingQueue
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
class RaterAssignment(models.Model):
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
    def history(self) -> models.QuerySet[StatusChange]:
        return StatusChange.objects.for_row(self).select_related("by")

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
