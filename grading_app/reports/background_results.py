"""What takes longer than anybody waits: pages ask for it, one worker at a time works it out, its row keeps it."""

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
PAUSE_S, PAUSE_SHARE = 30.0, 10.0  # While ratings come in, so long or so many times as long as it took.
LOST_AFTER = timedelta(minutes=15)


def claimed(rows: QuerySet[Any], *, at_once: Q) -> list[int]:
    """Keys of those of these rows that a worker is to be asked for: each caller gets others.

    One worker at a time; of ratings that keep coming in not at once again, but for the rows of `at_once`.
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
    """Do the work, which returns why it could not be done, or nothing; whatever comes of it, the row says so."""
    started, problem = time.monotonic(), GAVE_UP
    try:
        problem = work()
    finally:
        _update(row, ended_at=timezone.now(), step="", problem=problem, took_s=time.monotonic() - started)


def tell(row: BackgroundResult, step: str) -> None:
    _update(row, step=step)


def _update(row: BackgroundResult, **fields: Any) -> None:
    type(row)._default_manager.filter(pk=row.pk).update(**fields)
