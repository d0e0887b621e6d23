"""Preflights: small calls that check whether a model answers. They are recorded like every other call."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.history import Actor, make_author_columns
from evalsite.lib.text.number_format import format_money
from runs_app.models.endpoints import Endpoint, LanguageModel
from runs_app.models.experiments import Experiment
from runs_app.models.trials import HTTP_STATUS, CallRecord
from runs_app.pricing import costs

WAIT_LIMIT = timedelta(minutes=10)  # The time within which a worker must claim it.


class PreflightQuerySet(models.QuerySet["Preflight"]):
    def last_of_each_model(self) -> Self:
        return self.order_by("model_id", "-pk").distinct("model_id")

    def request(
        self, keys: Collection[int], *, by: Actor, experiment: Experiment | None = None, **content: Any
    ) -> list[Preflight]:
        """Create a waiting preflight for each model with one of these keys. The experiment, if any, pays for them.

        `content` has the columns of a try: `about`, `messages` and `parameters`.
        """
        user, actor = make_author_columns(by)
        return self.bulk_create(
            Preflight(
                model_id=key, experiment=experiment, by=user, actor=actor, lease_until=Now() + WAIT_LIMIT, **content
            )
            for key in keys
        )


@constrain_numbers(http_status=HTTP_STATUS)
@constrain_choices
class Preflight(CallRecord):
    """A check of one model, or a try: one call of a model with a prompt that may be unsaved, about one item.

    It is not an Attempt, because counters, exports and pages rely on every attempt having a trial and a run.

    Its status is waiting, then running, then ok, dead or unverified. While it runs, it holds a slot of its endpoint
    and a reservation. It enters each state only once, so its primary key suffices as a fencing token. `lease_until`
    limits both waiting and running; after it, the sweep ends the preflight. If `started_at` is empty, no call was made
    and the ledger does not include the preflight.
    """

    class Status(models.TextChoices):
        WAITING = "waiting", "Waiting"
        RUNNING = "running", "Running"
        OK = "ok", "OK"
        DEAD = "dead", "Failed"
        UNVERIFIED = "unverified", "Unverified"

    model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="preflights", db_index=False)
    endpoint = models.ForeignKey(
        Endpoint, on_delete=models.PROTECT, null=True, related_name="+", help_text="Endpoint whose slot it uses"
    )
    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.CASCADE,
        null=True,
        related_name="preflights",
        help_text="Experiment whose budget pays for the call, if any",
    )
    about = models.CharField(max_length=320, default="", help_text="Dataset and item of a try. Empty: a plain check")
    messages = models.JSONField(null=True, help_text="Messages of a try. An image has its hash in place of its bytes")
    parameters = models.JSONField(default=dict, help_text="Sampler's settings of a try")
    answer = models.TextField(default="", help_text="Answer of a try")
    status = models.CharField(max_length=10, choices=Status, default=Status.WAITING, editable=False)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    actor = models.CharField(max_length=200, help_text="Name of the requester at the time of the request")
    reserved_usd = models.DecimalField(max_digits=14, decimal_places=8, default=0)
    lease_until = models.DateTimeField(null=True)
    asked_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = PreflightQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["model", "-id"], name="preflight_latest"),
            models.Index(
                fields=["lease_until"], name="preflight_leases", condition=models.Q(status__in=["waiting", "running"])
            ),
        ]

    def __str__(self) -> str:
        return f"preflight {self.pk}: {self.status}"

    @property
    def is_open(self) -> bool:
        return self.status in (self.Status.WAITING, self.Status.RUNNING)

    @property
    def was_made(self) -> bool:
        return self.started_at is not None

    @property
    def outdated_since(self) -> datetime | None:
        """Return when its model or endpoint changed after the request, or None. An outdated result no longer applies.

        Fetch the preflight with its model and endpoint.
        """
        changes = (self.model.route_changed_at, self.model.endpoint.route_changed_at)
        latest = max((at for at in changes if at is not None), default=None)
        return latest if latest is not None and latest > self.asked_at else None

    @property
    def warning(self) -> str:
        """Return a sentence for commands if the result is outdated, else ""."""
        at = self.outdated_since
        return f"Checked before the endpoint changed on {at:%Y-%m-%d %H:%M} UTC; check again." if at else ""

    @property
    def result_text(self) -> str:
        """Return the result as a sentence, or "" while the preflight is open."""
        if self.status == self.Status.OK and self.latency_ms is not None:
            return f"Answered in {self.latency_ms} ms as {self.served_model or 'an unnamed model'}."
        return f"{self.error_class}: {self.error}" if self.was_made and self.error_class else self.error

    def find_unpaid_reason(self, ceiling: Decimal | None) -> str:
        """Return why the experiment's budget cannot cover the preflight's largest cost, or an empty text."""
        experiment = self.experiment
        if experiment is None or experiment.max_usd is None:
            return ""
        if ceiling is None:
            return f"unknown price: model {self.model} has no price, and experiment {experiment} has a budget"
        remaining = experiment.max_usd - experiment.spent_usd - experiment.reserved_usd
        if costs.round_reservation(ceiling) <= remaining:
            return ""
        return f"the budget of {experiment} has {format_money(remaining)} left, and it may cost {format_money(ceiling)}"


def prefetch_last_preflights(language_models: models.QuerySet[Any]) -> models.QuerySet[Any]:
    """Add `last_preflights` to each model: a list with its last preflight, or an empty list."""
    latest = Preflight.objects.last_of_each_model()
    return language_models.prefetch_related(models.Prefetch("preflights", latest, to_attr="last_preflights"))
