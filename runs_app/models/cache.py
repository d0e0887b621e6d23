"""The response cache: it maps a request to the stored trial that has its answer. Operators can purge it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from django.db import models, transaction
from django.db.models import Min, QuerySet

from evalsite.lib.constraints import constrain_numbers
from evalsite.lib.history import Actor, StatusChange, record_changes
from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.number_format import format_count
from runs_app.models.trials import Trial


class CachedAnswerQuerySet(models.QuerySet["CachedAnswer"]):
    def answered(self) -> Self:
        """Return the entries whose trial is done. Others are in flight or waiting."""
        return self.filter(trial__status=Trial.Status.DONE)


@constrain_numbers()
class CachedAnswer(models.Model):
    """A cache entry: the identity of a request and its epoch (`key`), and the trial that makes the request.

    The trial claims the key first. The entry is usable once the trial is done. The answer is stored only in the trial.
    """

    key = models.CharField(max_length=64, primary_key=True)
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = CachedAnswerQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.key[:12]}: trial {self.trial_id}"


WHOLE = CachedAnswer(pk=0)  # The history belongs to the whole cache. No cached answer has this key.


@dataclass(frozen=True, slots=True)
class CacheSize:
    """The number of cached answers, the disk space of their keys in bytes, and the time of the oldest one.

    `answers` may be counted up to a limit only. `bytes` excludes the answers, because they are stored with the trials.
    """

    answers: int
    bytes: int
    oldest: datetime | None


def measure_cache(limit: int | None = None) -> CacheSize:
    """Return the size of the cache, counting at most `limit` answers so that a page stays fast."""
    rows = CachedAnswer.objects.answered().order_by()
    ((used_bytes,),) = fetch_rows("SELECT pg_total_relation_size('runs_app_cachedanswer')")
    answers = rows.count() if limit is None else rows[:limit].count()
    oldest = rows.aggregate(oldest=Min("created_at"))["oldest"] if limit is None or answers < limit else None
    return CacheSize(answers, used_bytes if answers else 0, oldest)


def purge_cache(*, by: Actor, reason: str = "") -> int:
    """Delete every cached answer, record the purge, and return the number of deleted answers.

    The trials stay. Later requests call the model again.
    """
    with transaction.atomic():
        purged = CachedAnswer.objects.answered().count()
        CachedAnswer.objects.all().delete()
        change = (WHOLE, f"{format_count(purged)} answers", "emptied")
        record_changes([change], by=by, reason=reason, aspect="response cache")
    return purged


def list_purges() -> QuerySet[StatusChange]:
    """Return the recorded purges, latest first, each with its user."""
    return StatusChange.objects.for_row(WHOLE).select_related("by")
