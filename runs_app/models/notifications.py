"""Notifications: what each person wants to hear of, the state of each experiment, and the messages to send."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from evalsite.lib.constraints import constrain_choices, constrain_numbers
from runs_app.models.experiments import Experiment


def make_webhook_secret() -> str:
    return secrets.token_urlsafe(32)


class NotificationChoice(models.Model):
    """The messages that a person wants about experiments that they own or marked as favourites, and their channels."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="notification_choice"
    )
    on_end = models.BooleanField("all runs have ended", default=True)
    on_stop = models.BooleanField("a run has stopped", default=True)
    on_budget = models.BooleanField("a budget is reached", default=True)
    by_mail = models.BooleanField("by mail", default=False)
    webhook_url = models.URLField(
        "webhook", blank=True, max_length=500, help_text="An address of your own that receives a signed POST request"
    )
    webhook_secret = models.CharField(max_length=64, default=make_webhook_secret, editable=False)

    def __str__(self) -> str:
        return f"notifications of {self.user}"

    @property
    def events(self) -> set[str]:
        return {event for event in Notification.Event.values if getattr(self, f"on_{event}", False)}

    @property
    def channels(self) -> list[str]:
        mail = [Notification.Channel.MAIL] if self.by_mail and self.user.email else []
        return [*mail, *([Notification.Channel.WEBHOOK] if self.webhook_url else [])]


class NoticedState(models.Model):
    """The events that hold for an experiment now, as the last look found them. A new event is told once."""

    experiment = models.OneToOneField(Experiment, on_delete=models.CASCADE, primary_key=True, related_name="+")
    events = models.CharField(max_length=40, blank=True, help_text="Separated by spaces")

    def __str__(self) -> str:
        return f"{self.experiment}: {self.events or 'under way'}"


class NotificationQuerySet(models.QuerySet["Notification"]):
    def due(self) -> Self:
        return self.filter(sent_at=None, try_at__lte=timezone.now(), n_tries__lt=Notification.MAX_TRIES)

    def visible_to(self, user: Any) -> Self:
        return self.filter(user=user)


@constrain_numbers()
@constrain_choices
class Notification(models.Model):
    """One message to one person by one channel. It is tried again until it is sent or MAX_TRIES is reached."""

    class Event(models.TextChoices):
        END = "end", "All runs have ended"
        STOP = "stop", "A run has stopped"
        BUDGET = "budget", "The budget is reached"
        TEST = "test", "Test"

    class Channel(models.TextChoices):
        MAIL = "mail", "Mail"
        WEBHOOK = "webhook", "Webhook"

    MAX_TRIES = 6
    WAITS = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2), timedelta(hours=8))

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notifications")
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, null=True, related_name="+")
    event = models.CharField(max_length=10, choices=Event.choices)
    channel = models.CharField(max_length=10, choices=Channel.choices)
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)
    try_at = models.DateTimeField(default=timezone.now, help_text="Not before")
    n_tries = models.PositiveSmallIntegerField(default=0)
    sent_at = models.DateTimeField(null=True, blank=True)
    problem = models.CharField(max_length=300, blank=True, help_text="Of the last try")

    objects = NotificationQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["try_at"], condition=models.Q(sent_at=None), name="notification_waiting"),
        ]

    def __str__(self) -> str:
        return f"notification {self.pk}"

    @property
    def state(self) -> str:
        if self.sent_at:
            return "done"
        return "failed" if self.n_tries >= self.MAX_TRIES else "waiting"

    @property
    def url(self) -> str:
        """Return the address of the page about the message, absolute if the site knows its own."""
        if self.experiment is None:
            path = reverse("notifications")
        else:
            name = "experiment_results" if self.event == self.Event.END else "experiment_progress"
            path = reverse(name, args=[self.experiment.slug])
        return f"{settings.SITE_URL}{path}"

    def build_payload(self) -> dict[str, Any]:
        return {
            "id": f"notification-{self.pk}",
            "event": self.event,
            "experiment": self.experiment.slug if self.experiment else None,
            "text": self.text,
            "url": self.url,
            "at": self.created_at.isoformat(timespec="seconds"),
        }
