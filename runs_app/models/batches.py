"""Batches: many calls sent to a provider in one file, answered within a day at a lower price."""

from __future__ import annotations

import uuid
from datetime import datetime
from decimal import Decimal
from typing import Any, Self

from django.db import models
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.history import Actor, HasHistory, TransitionQuerySet
from runs_app.models.endpoints import Endpoint
from runs_app.models.experiments import Experiment
from runs_app.models.runs import Run


class ProviderBatchQuerySet(TransitionQuerySet):
    def visible_to(self, user: Any) -> Self:
        return self.filter(run__experiment__in=Experiment.objects.visible_to(user))

    def open(self) -> Self:
        """Return the batches that are not finished; they may still hold trials."""
        return self.filter(status__in=ProviderBatch.OPEN)

    def request_cancel(self, *, by: Actor, reason: str) -> list[int]:
        """Mark these batches for cancellation and return their ids. The next worker that polls a batch cancels it.

        A batch that is being collected is too late to cancel.
        """
        Status = ProviderBatch.Status
        sources = [Status.PREPARING, Status.SUBMITTING, Status.SUBMITTED]
        return self.transition(sources=sources, target=Status.CANCELLING, by=by, reason=reason, next_poll_at=Now())


@constrain_numbers()
@constrain_choices
class ProviderBatch(HasHistory, models.Model):
    """A batch of trials of one run at a provider.

    Its `key` is the token of the trials' claims. The provider also stores this key, so that a lost batch can be found.
    The claims of a batch have no lease. Instead, a worker claims the batch row and renews its lease. Another worker
    takes the batch over when that lease expires.
    """

    class Status(models.TextChoices):
        PREPARING = "preparing", "Preparing"
        SUBMITTING = "submitting", "Submitting"
        SUBMITTED = "submitted", "Submitted"
        COLLECTING = "collecting", "Collecting"
        CANCELLING = "cancelling", "Cancelling"
        COLLECTED = "collected", "Collected"
        CANCELLED = "cancelled", "Cancelled"
        FAILED = "failed", "Failed"
        EXPIRED = "expired", "Expired"

    OPEN = (Status.PREPARING, Status.SUBMITTING, Status.SUBMITTED, Status.COLLECTING, Status.CANCELLING)

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="batches")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="batches")
    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    status = models.CharField(max_length=10, choices=Status, default=Status.PREPARING, editable=False)
    n_requests = models.IntegerField(default=0, help_text="Trials in the batch. After submission: calls in it")
    n_answered = models.IntegerField(default=0)
    n_failed = models.IntegerField(default=0, help_text="Calls that ended with an error")
    reserved_usd = models.DecimalField(
        max_digits=16, decimal_places=8, default=0, help_text="Reserved for the whole batch when it was created"
    )
    spent_usd = models.DecimalField(max_digits=16, decimal_places=8, default=0)
    discount = models.DecimalField(max_digits=4, decimal_places=3, default=0, help_text="Share of the price it saves")

    input_file = models.CharField(max_length=200, blank=True, help_text="Provider's ID of the uploaded file")
    provider_id = models.CharField(max_length=200, blank=True, help_text="Provider's ID of the batch")
    provider_status = models.CharField(max_length=40, blank=True, help_text="Status as reported by the provider")
    provider_counts = models.JSONField(default=dict, help_text="Counts of calls as reported by the provider")
    output_files = models.JSONField(default=list, help_text="Provider's IDs of the result files")
    search_until = models.DateTimeField(
        null=True, help_text="A lost submission that is not found by this time was never made"
    )

    claim = models.UUIDField(null=True, editable=False, help_text="Token of the worker that processes the batch")
    lease_until = models.DateTimeField(null=True, editable=False)
    worker = models.ForeignKey(
        "runs_app.Worker", on_delete=models.SET_NULL, null=True, db_constraint=False, db_index=False, related_name="+"
    )
    tries = models.SmallIntegerField(default=0, help_text="Consecutive failures of the next step")
    error = models.TextField(blank=True, help_text="Error of the last failure")

    created_at = models.DateTimeField(auto_now_add=True)
    submitted_at = models.DateTimeField(null=True)
    last_polled_at = models.DateTimeField(null=True)
    next_poll_at = models.DateTimeField(default=timezone.now, help_text="Time of the next step or poll")
    expires_at = models.DateTimeField(null=True, help_text="Time after which the provider stops answering")
    ended_at = models.DateTimeField(null=True)

    objects = ProviderBatchQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        verbose_name_plural = "provider batches"
        indexes = [
            models.Index(
                fields=["next_poll_at"],
                name="batch_due",
                condition=models.Q(status__in=["preparing", "submitting", "submitted", "collecting", "cancelling"]),
            ),
        ]

    def __str__(self) -> str:
        return f"batch {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("batch_detail", args=[self.pk])

    @property
    def is_open(self) -> bool:
        return self.status in self.OPEN

    @property
    def can_be_cancelled(self) -> bool:
        return self.status in (self.Status.PREPARING, self.Status.SUBMITTING, self.Status.SUBMITTED)

    @property
    def search_ends_at(self) -> datetime | None:
        """Return when the search for a lost submission ends, or None if no submission is lost.

        If the response to a submission was lost, the batch may exist at the provider. A worker submits it again only
        after this time.
        """
        is_lost = self.is_open and not self.provider_id and self.tries and self.search_until
        return max(filter(None, (self.search_until, self.expires_at))) if is_lost else None

    @property
    def saved_usd(self) -> Decimal:
        """Return the saving by the batch discount, in US dollars."""
        return self.spent_usd * self.discount / (1 - self.discount) if self.discount < 1 else Decimal(0)
