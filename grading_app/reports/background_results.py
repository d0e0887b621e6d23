"""Results that take too long for a request: pages request them, one worker computes them, a row holds them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper, F, Q, QuerySet, Value
from django.db.models.functions import Greatest
from django.utils import timezone

from grading_app.models import BackgroundResult

WAITING = "waiting for a worker"
GAVE_UP = "the worker gave up; its log says why"
# While ratings arrive, wait at least PAUSE_S seconds, or PAUSE_SHARE times the last duration.
PAUSE_S, PAUSE_SHARE = 30.0, 10.0
LOST_AFTER = timedelta(minutes=15)


def claimed(rows: QuerySet[Any], *, at_once: Q) -> list[int]:
    """Claim the rows that need a worker, and return their keys. Concurrent callers claim different rows.

    Only one worker computes a row at a time. After a result there is a pause, because ratings may keep arriving. The
    rows of `at_once` skip the pause.
    """
    now = timezone.now()
    is_idle = Q(asked_at=None) | Q(ended_at__gte=F("asked_at")) | Q(asked_at__lt=now - LOST_AFTER)
    pause = Greatest(Value(PAUSE_S), PAUSE_SHARE * F("took_s")) * Value(timedelta(seconds=1))
    rested_at = ExpressionWrapper(F("ended_at") + pause, output_field=DateTimeField())
    has_rested = Q(ended_at=None) | Q(rested_at__lt=now)
    with transaction.atomic():
        due = rows.annotate(rested_at=rested_at).filter(is_idle, has_rested | at_once)
        keys = list(due.select_for_update(skip_locked=True).values_list("pk", flat=True))
        rows.model._default_manager.filter(pk__in=keys).update(asked_at=now, step=WAITING, problem="")
    return keys


def worked(row: BackgroundResult, work: Callable[[], str]) -> None:
    """Run the work and record its end in the row, even if it fails. `work` returns the reason for no result, or ""."""
    started, problem = time.monotonic(), GAVE_UP
    try:
        problem = work()
    finally:
        _update(row, ended_at=timezone.now(), step="", problem=problem, took_s=time.monotonic() - started)


def tell(row: BackgroundResult, step: str) -> None:
    _update(row, step=step)


def _update(row: BackgroundResult, **fields: Any) -> None:
    type(row)._default_manager.filter(pk=row.pk).update(**fields)
