"""The size of the whole response cache, its purge, and the history of purges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Min, QuerySet

from evalsite.lib.history import Actor, StatusChange, record_changes
from evalsite.lib.text.number_format import format_count
from runs_app.models import CachedAnswer

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
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_total_relation_size('runs_app_cachedanswer')")
        (used_bytes,) = cursor.fetchone()
    answers = rows.count() if limit is None else rows[:limit].count()
    oldest = rows.aggregate(oldest=Min("created_at"))["oldest"] if limit is None or answers < limit else None
    return CacheSize(answers, used_bytes if answers else 0, oldest)


def purge(*, by: Actor, reason: str = "") -> int:
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
