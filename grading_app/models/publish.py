"""Publications: the report with its author's choices, links for readers without an account, and stored files.

The files are snapshots and the rows of stored experiments.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from django.conf import settings
from django.db import models, transaction
from django.utils import timezone

from datasets_app.models import BackgroundJob
from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.history import Actor, record_changes
from evalsite.lib.text.hashing import hash_token
from runs_app.models import Experiment

TOKEN_BYTES = 32  # 256 bits: a token cannot be guessed.


class SnapshotQuerySet(models.QuerySet["Snapshot"]):
    def visible_to(self, user: Any) -> Self:
        return self.filter(experiment__in=Experiment.objects.visible_to(user))


@constrain_numbers()
class Snapshot(models.Model):
    """A snapshot file. Its name is `digest`, the SHA-256 of the file's list of checksums."""

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="snapshots")
    label = models.CharField(max_length=80, blank=True)
    reason = models.CharField(max_length=500, blank=True)
    digest = models.CharField(max_length=64)
    counts = models.JSONField(help_text="The numbers in the study card")
    size = models.BigIntegerField(help_text="Bytes")
    actor = models.CharField(max_length=200, help_text="The name of the author, or of the program, at that time")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = SnapshotQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return self.label or self.digest[:12]

    @property
    def path(self) -> Path:
        """Return the path of the file. It is stored beside the images, so that a backup includes it."""
        return self.folder() / f"{self.digest}.zip"

    @staticmethod
    def folder() -> Path:
        return Path(settings.MEDIA_ROOT) / "snapshots"

    @staticmethod
    def get_job_subject(experiment: Experiment) -> str:
        """Return the subject of the jobs that create snapshots of this experiment."""
        return f"snapshot of experiment {experiment.pk}"

    @property
    def rows(self) -> dict[str, int]:
        """Return the number of rows by table."""
        counts: dict[str, int] = self.counts["rows"]
        return counts


@constrain_numbers()
class StoredRows(models.Model):
    """The file that holds the answers, calls, grades and ratings of a stored experiment.

    The row exists while they are there. Its name is `digest`, as for a snapshot. `counters` are those of the
    experiment's runs and ledger, which stay, and `headline` is its score in lists.
    """

    STORE, BRING_BACK = "store", "bring back"  # The kinds of its jobs.

    experiment = models.OneToOneField(Experiment, on_delete=models.CASCADE, related_name="stored_rows")
    digest = models.CharField(max_length=64)
    size = models.BigIntegerField(help_text="Bytes")
    counts = models.JSONField(help_text="The numbers in the study card")
    counters = models.JSONField()
    headline = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"rows of {self.experiment}"

    @property
    def path(self) -> Path:
        return self.folder() / f"{self.digest}.zip"

    @staticmethod
    def get_job_subject(experiment: Experiment) -> str:
        """Return the subject of the jobs that store rows of this experiment, or bring them back."""
        return f"rows of experiment {experiment.pk}"

    @classmethod
    def find_job(cls, experiment: Experiment) -> BackgroundJob | None:
        """Return the job that pages of the experiment show: it is open, or failed to change the present status."""
        job: BackgroundJob | None = BackgroundJob.objects.filter(subject=cls.get_job_subject(experiment)).first()
        if job is None or experiment.is_stored != (job.kind == cls.BRING_BACK):
            return None
        return job if job.is_active or job.problem else None

    @staticmethod
    def folder() -> Path:
        """Return the folder of the files. It is beside the images, so that a backup includes it."""
        return Path(settings.MEDIA_ROOT) / "stored"


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
