"""The author's choices for an experiment's report, and links for readers without an account."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any, Self

from django.conf import settings
from django.db import models, transaction
from django.utils import timezone

from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.history import Actor, record_changes
from evalsite.lib.text.hashing import hash_token
from runs_app.models import Experiment

TOKEN_BYTES = 32  # 256 bits: a token cannot be guessed.


@constrain_numbers()
class ReportChoices(models.Model):
    """The choices of a report's author. The rest of the report is generated from rows.

    `left_out` are names of sections. `texts` is Markdown by the name of the section that follows it, or "end".
    """

    experiment = models.OneToOneField(Experiment, on_delete=models.CASCADE, related_name="report_choices")
    left_out = models.JSONField(default=list, blank=True)
    texts = models.JSONField(default=dict, blank=True)
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"report of {self.experiment}"

    @classmethod
    def load(cls, experiment: Experiment) -> ReportChoices:
        """Return the stored choices, or the defaults: every section and no text."""
        return cls.objects.filter(experiment=experiment).first() or cls(experiment=experiment)

    def change(self, *, left_out: list[str], texts: dict[str, str], by: Actor) -> bool:
        """Store new choices and record them in the experiment's history. Return False if nothing changed."""
        with transaction.atomic():
            Experiment.objects.select_for_update(no_key=True).get(pk=self.experiment_id)
            row = type(self).load(self.experiment)
            if (row.left_out, row.texts) == (left_out, texts):
                return False
            row.left_out, row.texts = left_out, texts
            row.save()
            summary = f"{len(left_out)} sections left out, {len(texts)} texts"
            record_changes([(self.experiment, "", summary)], by=by, reason="", aspect="report")
        return True


class ShareLinkQuerySet(models.QuerySet["ShareLink"]):
    def visible_to(self, user: Any) -> Self:
        return self.filter(experiment__in=Experiment.objects.editable_by(user))

    def usable(self) -> Self:
        """Exclude links that have expired, were revoked, or whose author has no active account."""
        return self.filter(revoked_at=None, expires_at__gt=timezone.now(), created_by__is_active=True)

    def find(self, token: str) -> ShareLink | None:
        """Return the usable link of a token. Every other token returns None."""
        return self.usable().filter(token_hash=hash_token(token)).select_related("experiment__dataset").first()


@constrain_numbers()
@constrain_choices
class ShareLink(models.Model):
    """A link to a part of an experiment for readers without an account. The database stores only its token's hash."""

    class Scope(models.TextChoices):
        REPORT = "report", "The report"
        LEADERBOARD = "leaderboard", "The leaderboard"
        EXPERIMENT = "experiment", "The whole experiment: design, leaderboard, report and figures"

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="share_links")
    scope = models.CharField(max_length=12, choices=Scope, default=Scope.REPORT)
    label = models.CharField(max_length=80, blank=True, help_text="The recipient of the link")
    token_hash = models.CharField(max_length=64, unique=True, editable=False)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    shows_costs = models.BooleanField(default=False, help_text="If off, its pages do not show the cost of calls")

    objects = ShareLinkQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"share link {self.pk} to the {self.scope}"

    @property
    def state(self) -> str:
        if self.revoked_at:
            return "revoked"
        if self.created_by is None or not self.created_by.is_active:
            return "without author"
        return "expired" if self.expires_at <= timezone.now() else "active"

    def shows(self, scope: str) -> bool:
        """Return whether the link shows this part."""
        return self.scope in (scope, self.Scope.EXPERIMENT)

    @classmethod
    def create(
        cls,
        experiment: Experiment,
        scope: str,
        expires_at: datetime,
        *,
        label: str = "",
        shows_costs: bool = False,
        by: Any,
    ) -> tuple[ShareLink, str]:
        """Create a link and return it with its token, which cannot be shown again."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        with transaction.atomic():
            link = cls.objects.create(
                experiment=experiment,
                scope=scope,
                label=label,
                token_hash=hash_token(token),
                expires_at=expires_at,
                created_by=by,
                shows_costs=shows_costs,
            )
            costs = " with costs" if shows_costs else ""
            text = f"link {link.pk} to the {scope}{costs} until {expires_at:%Y-%m-%d %H:%M} UTC"
            record_changes([(experiment, "", text)], by=by, reason=label, aspect="share link")
        return link, token

    def revoke(self, *, by: Actor) -> bool:
        """End the link at once. Return False if it was revoked before."""
        with transaction.atomic():
            rows = type(self).objects.filter(pk=self.pk, revoked_at=None)
            if not rows.update(revoked_at=timezone.now()):
                return False
            record_changes([(self.experiment, f"link {self.pk}", "revoked")], by=by, reason="", aspect="share link")
        return True
