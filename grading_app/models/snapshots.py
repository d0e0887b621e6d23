"""A snapshot: an experiment's data in one file, with author, time and reason; and requests for snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from django.conf import settings
from django.db import connection, models
from django.db.models.functions import Now
from django.utils import timezone

from datasets_app.models.history import Actor, make_author_columns
from evalsite.lib.range_constraints import constrain_numbers
from runs_app.models import Experiment

QUEUE_LIMIT = timedelta(minutes=10)  # After it, another request may replace one that no worker has started.
LATE_AFTER = timedelta(seconds=10)  # A free worker starts a job within a second.
LOCK_CLASS = 0x736E6170  # The first key of the advisory locks of workers that make snapshots.
NOT_STARTED = "no worker started it within 10 minutes; “python manage.py up” starts the site with workers"
WORKER_STOPPED = "the worker that created it stopped"


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

    @property
    def rows(self) -> dict[str, int]:
        """Return the number of rows by table."""
        counts: dict[str, int] = self.counts["rows"]
        return counts


class SnapshotJobQuerySet(models.QuerySet["SnapshotJob"]):
    def request(self, experiment: Experiment, *, label: str, reason: str, by: Actor) -> tuple[SnapshotJob, bool]:
        """Return the job of an experiment and whether it is new. While a job is open, there is no second one."""
        user, actor = make_author_columns(by)
        open_jobs = self.filter(experiment=experiment, ended_at=None)
        for job in open_jobs:
            if problem := job.find_stop():
                open_jobs.filter(pk=job.pk).update(ended_at=Now(), problem=problem)
        columns = {"label": label, "reason": reason, "by": user, "actor": actor}
        return self.get_or_create(experiment=experiment, ended_at=None, defaults=columns)


@constrain_numbers()
class SnapshotJob(models.Model):
    """A request that a worker creates a snapshot. It is open until `ended_at`; `problem` says why it failed.

    A worker holds the job's advisory lock while it writes. The database releases the lock if the worker dies.
    """

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="snapshot_jobs")
    label = models.CharField(max_length=80, blank=True)
    reason = models.CharField(max_length=500, blank=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    actor = models.CharField(max_length=200, help_text="Name of the requester at the time of the request")
    requested_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, help_text="When a worker started it")
    ended_at = models.DateTimeField(null=True)
    problem = models.TextField(blank=True)

    objects = SnapshotJobQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["experiment"], condition=models.Q(ended_at=None), name="snapshotjob_one_open"
            ),
        ]

    def __str__(self) -> str:
        return f"snapshot of {self.experiment}, requested by {self.actor}"

    @property
    def is_late(self) -> bool:
        """Return whether the job has been queued for longer than a free worker needs to start it."""
        return self.started_at is None and timezone.now() - self.requested_at > LATE_AFTER

    def find_stop(self) -> str:
        """Return why this open job will not finish, or "" while it may."""
        if self.started_at is None:
            return NOT_STARTED if timezone.now() - self.requested_at > QUEUE_LIMIT else ""
        if self._is_locked():
            return ""
        # A worker records the end before it releases the lock.
        return WORKER_STOPPED if SnapshotJob.objects.filter(pk=self.pk, ended_at=None).exists() else ""

    @contextmanager
    def start(self) -> Iterator[bool]:
        """Yield True if this worker is the one that performs the job, and hold the job's lock during the block."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s, %s)", [LOCK_CLASS, self.pk])
            try:
                yield (
                    SnapshotJob.objects.filter(pk=self.pk, started_at=None, ended_at=None).update(started_at=Now()) > 0
                )
            finally:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [LOCK_CLASS, self.pk])

    def finish(self, problem: str = "") -> None:
        SnapshotJob.objects.filter(pk=self.pk, ended_at=None).update(ended_at=Now(), problem=problem)

    def _is_locked(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objid = %s AND"
                " database = (SELECT oid FROM pg_database WHERE datname = current_database()))",
                [LOCK_CLASS, self.pk],
            )
            return bool(cursor.fetchone()[0])
