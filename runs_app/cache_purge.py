"""The response cache as a whole: how much it holds, and emptying it, with who did so, when and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Min, QuerySet

from datasets_app.models import StatusChange
from datasets_app.models.history import Actor, record_changes
from evalsite.lib.text.number_format import format_count
from runs_app.models import CachedAnswer

WHOLE = CachedAnswer(pk=0)  # The history is of the cache, not of one answer: no answer has this key.


@dataclass(frozen=True, slots=True)
class CacheSize:
    """`answers` may be counted up to a limit only; `bytes` is what the keys take on disk, the answers being trials'."""

    answers: int
    bytes: int
    oldest: datetime | None


def size_of_cache(limit: int | None = None) -> CacheSize:
    """Counted up to `limit`, since a page need not count a million."""
    rows = CachedAnswer.objects.answered().order_by()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_total_relation_size('runs_app_cachedanswer')")
        (taken,) = cursor.fetchone()
    answers = rows.count() if limit is None else rows[:limit].count()
    oldest = rows.aggregate(oldest=Min("created_at"))["oldest"] if limit is None or answers < limit else None
    return CacheSize(answers, taken if answers else 0, oldest)


def purge(*, by: Actor, reason: str = "") -> int:
    """Empty the cache: every request is asked anew. The trials stay. Returns how many answers were forgotten."""
    with transaction.atomic():
        forgotten = CachedAnswer.objects.answered().count()
        CachedAnswer.objects.all().delete()
        change = (WHOLE, f"{format_count(forgotten)} answers", "emptied")
        record_changes([change], by=by, reason=reason, what="response cache")
    return forgotten


def purges() -> QuerySet[StatusChange]:
    """Who emptied it, when and why; the last one first."""
    return StatusChange.objects.of(WHOLE).select_related("by")
