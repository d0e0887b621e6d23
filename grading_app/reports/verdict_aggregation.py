"""The worker's part of the grading pages: it adds up verdicts if there are many."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from grading_app.models import Sums
from grading_app.reports.background_results import worked
from grading_app.reports.length_bias import LENGTHS
from grading_app.reports.pairwise_stats import PAIRS
from grading_app.reports.verdict_cache import Aggregate, read_by_worker
from grading_app.reports.verdict_stats import SCORES

PARTS: dict[str, Aggregate[Any]] = {part.name: part for part in (SCORES, LENGTHS, PAIRS)}


def add_up(keys: Sequence[int], *, seconds: float) -> list[int]:
    """Compute these rows, at least one, until the time is over. Return the keys that are left."""
    end = time.monotonic() + seconds
    for at, key in enumerate(keys):
        if at and time.monotonic() >= end:
            return list(keys[at:])
        _add_up(key)
    return []


def _add_up(key: int) -> None:
    row = Sums.objects.select_related("condition__experiment").filter(pk=key).first()
    if row is not None:
        among = list(row.condition.experiment.grade_conditions.select_related("rubric").order_by("pk"))
        worked(row, lambda: read_by_worker(row, PARTS[row.part], among))
