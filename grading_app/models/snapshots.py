"""Files with an experiment's data: snapshots, and the rows of stored experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from django.conf import settings
from django.db import models

from datasets_app.models import BackgroundJob
from evalsite.lib.constraints import constrain_numbers
from runs_app.models import Experiment


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
    """The file that holds the answers, calls and grades of a stored experiment. The row exists while they are there.

    Its name is `digest`, as for a snapshot. `counters` are those of the experiment's runs and ledger, which stay, and
    `headline` is its score in lists.
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
