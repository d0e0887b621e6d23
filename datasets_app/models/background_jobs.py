"""Jobs that a worker performs while somebody waits: reading an upload, importing it, building a space, a snapshot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections, models
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.functional import cached_property

from evalsite.lib.constraints import constrain_numbers
from evalsite.lib.history import Actor, make_author_columns
from evalsite.lib.text.characters import replace_unstorable

LOCK_CLASS = 0x6A6F6273  # The first key of the advisory locks of workers that perform jobs.
LATE_AFTER = timedelta(seconds=10)  # A free worker starts a job within a second.
QUEUE_LIMIT = timedelta(minutes=10)  # After it, another request may replace a job that no worker has started.
KEPT_FOR = timedelta(days=30)
REPORT_S = 1.0  # Between two reports of progress.
READING, SAVING = "reading", "saving"
NOT_STARTED = "no worker started it within 10 minutes; “python manage.py up” starts the site with workers"
WORKER_STOPPED = "the worker stopped"
LOCKED = (
    "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND granted AND"
    " database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
REPORT = "UPDATE datasets_app_backgroundjob SET done = %s, total = %s WHERE id = %s AND started_at = %s"


class BackgroundJobQuerySet(models.QuerySet["BackgroundJob"]):
    def request(
        self, subject: str, kind: str, *, task: str, timeout_s: int, by: Actor, parameters: dict[str, Any]
    ) -> tuple[BackgroundJob, bool]:
        """Queue a job and return it, and whether it is new. While a job of the subject is open, there is no second one.

        `task` is the dotted name of the task that performs it; its only argument is the job's primary key.
        """
        open_jobs = self.filter(subject=subject, ended_at=None)
        for job in open_jobs:
            if problem := job.find_stop():
                open_jobs.filter(pk=job.pk, started_at=job.started_at).update(ended_at=Now(), problem=problem)
        user, actor = make_author_columns(by)
        columns = {
            "kind": kind, "task": task, "timeout_s": timeout_s, "by": user, "actor": actor, "parameters": parameters
        }  # fmt: skip
        job, is_new = self.get_or_create(subject=subject, ended_at=None, defaults=columns)
        if is_new:
            job.enqueue()
        return job, is_new

    def sweep(self) -> int:
        """End the jobs whose worker was lost, and delete old ones. Return the number of lost workers."""
        self.filter(ended_at__lt=timezone.now() - KEPT_FOR).delete()
        started = list(self.filter(ended_at=None).exclude(started_at=None))
        lost = [job for job in started if job.is_lost]
        return sum(
            self.filter(pk=job.pk, started_at=job.started_at, ended_at=None).update(
                ended_at=Now(), problem=WORKER_STOPPED
            )
            for job in lost
        )


@constrain_numbers()
class BackgroundJob(models.Model):
    """A request that a worker computes something for `subject`. It is open until `ended_at`.

    Its worker holds the job's advisory lock until it has recorded the end; the database releases the lock when the
    worker dies. `started_at` is the worker's fencing token: a worker that lost its job to another one records nothing.
    """

    subject = models.CharField(max_length=80, help_text="What it is for: an upload, or an experiment's snapshot")
    kind = models.CharField(max_length=20, help_text="What to do, such as import")
    task = models.CharField(max_length=100, help_text="Dotted name of the task that performs it")
    timeout_s = models.PositiveIntegerField(help_text="Time limit of the task")
    parameters = models.JSONField(default=dict)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    actor = models.CharField(max_length=200, help_text="Name of the requester at the time of the request")
    requested_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, help_text="When a worker started it")
    step = models.CharField(max_length=20, blank=True)
    saving_since = models.DateTimeField(null=True, help_text="When a worker first began to save, also a lost one")
    done = models.PositiveBigIntegerField(default=0, help_text="Rows, cases or bytes so far")
    total = models.PositiveBigIntegerField(default=0, help_text="Rows, cases or bytes in all; 0 if unknown")
    ended_at = models.DateTimeField(null=True)
    problem = models.TextField(blank=True, help_text="Why it failed")
    result = models.JSONField(default=dict, help_text="What it made, such as the name of a dataset")

    objects = BackgroundJobQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["subject", "-id"], name="backgroundjob_of_subject")]
        constraints = [
            models.UniqueConstraint(
                fields=["subject"], condition=models.Q(ended_at=None), name="backgroundjob_one_open"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}, requested by {self.actor}"

    @property
    def is_active(self) -> bool:
        return self.ended_at is None

    @property
    def state(self) -> str:
        """Return queued, reading, saving, done or failed."""
        if self.ended_at is not None:
            return "failed" if self.problem else "done"
        return (self.step or READING) if self.started_at else "queued"

    @property
    def queued_s(self) -> int:
        return int((timezone.now() - self.requested_at).total_seconds())

    @property
    def is_waited_for(self) -> bool:
        """Return whether a page should wait for it: it is open, and its worker is not lost."""
        return self.is_active and not self.is_lost

    @property
    def is_late(self) -> bool:
        """Return whether the job has been queued for longer than a free worker needs to start it."""
        return self.state == "queued" and timezone.now() - self.requested_at > LATE_AFTER

    @cached_property
    def is_lost(self) -> bool:
        """Return whether its worker stopped without a result."""
        if self.ended_at is not None or self.started_at is None:
            return self.problem == WORKER_STOPPED
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT %s IN ({LOCKED})", [self.pk, LOCK_CLASS])
            if cursor.fetchone()[0]:
                return False
        # A worker records the end before it releases the lock.
        return BackgroundJob.objects.filter(pk=self.pk, started_at=self.started_at, ended_at=None).exists()

    def find_stop(self) -> str:
        """Return why this open job will not finish, or "" while it may."""
        if self.started_at is None:
            return NOT_STARTED if timezone.now() - self.requested_at > QUEUE_LIMIT else ""
        return WORKER_STOPPED if self.is_lost else ""

    def enqueue(self) -> None:
        from django_q.tasks import async_task

        async_task(self.task, self.pk, save=False, timeout=self.timeout_s)

    def retry(self) -> None:
        """Queue the job again if it has ended, is late in the queue, or lost its worker."""
        if not (self.ended_at or self.is_late or self.is_lost):
            return
        unchanged = BackgroundJob.objects.filter(pk=self.pk, started_at=self.started_at, ended_at=self.ended_at)
        if unchanged.update(requested_at=Now(), started_at=None, ended_at=None, step="", done=0, total=0, problem=""):
            self.enqueue()

    @contextmanager
    def perform(self) -> Iterator[bool]:
        """Yield True if this worker is the one that performs the job, and hold the job's lock during the block.

        A task of the queue may run twice; the second run waits for nothing and does nothing. The lock and the progress
        have a connection of their own, so they do not depend on the transactions of the work.
        """
        self._own_connection = connections.create_connection(DEFAULT_DB_ALIAS)
        self._next_report = 0.0
        try:
            with self._own_connection.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [LOCK_CLASS, self.pk])
                is_free = cursor.fetchone()[0]
            # Nobody holds the lock of an open job that was started: its worker was lost, and this one replaces it.
            now = timezone.now()
            is_mine = is_free and BackgroundJob.objects.filter(pk=self.pk, ended_at=None).update(started_at=now) > 0
            if is_mine:
                self.refresh_from_db()
            yield is_mine
        finally:
            # The server ends a closed session a moment later. Until then, the next worker would find the job held.
            with suppress(Error), self._own_connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock_all()")
            self._own_connection.close()

    def enter(self, step: str, *, total: int = 0) -> None:
        """Record the step that begins now. Call this outside the transaction of the work."""
        self.step, self.total = step, total
        columns: dict[str, Any] = {"step": step, "done": 0, "total": total}
        if step == SAVING:
            self.saving_since = columns["saving_since"] = timezone.now()
        self._update(**columns)

    def report(self, done: int, total: int | None = None) -> None:
        """Record progress, at most once a second. The work's transaction may be open."""
        if time.monotonic() < self._next_report:
            return
        self._next_report = time.monotonic() + REPORT_S
        with self._own_connection.cursor() as cursor:
            cursor.execute(REPORT, [done, self.total if total is None else total, self.pk, self.started_at])

    def finish(self, problem: str = "", /, **result: Any) -> None:
        """Record the end. Do nothing if another worker has taken over."""
        # The problem may quote a file that a user sent.
        self.problem, self.result, self.ended_at = replace_unstorable(problem), result, timezone.now()
        self._update(problem=self.problem, result=result, ended_at=self.ended_at)

    def _update(self, **columns: Any) -> None:
        BackgroundJob.objects.filter(pk=self.pk, started_at=self.started_at, ended_at=None).update(**columns)
