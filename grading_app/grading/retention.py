"""The retention rule: raw responses of finished, graded experiments are removed after some days.

Everything else about an answer stays: its text, reasoning, rating, tokens and cost, and the hash of the raw response.
Grades, judges and `reconcile` never read raw responses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection
from django.db.models import Exists, OuterRef
from django.utils import timezone

from evalsite.lib.history import Actor, record_changes
from evalsite.lib.sql import fetch_rows, iterate_key_ranges
from evalsite.lib.text.number_format import format_count
from grading_app.grading.scoring import is_graded
from runs_app.models import Attempt, Experiment, Run, Trial

TABLES = (Trial._meta.db_table, Attempt._meta.db_table)
PAGE = 2_000  # Rows of one transaction: few, because each is locked until its end.
KEYS = """SELECT t.id FROM {table} t JOIN runs_app_run r ON r.id = t.run_id
    WHERE r.experiment_id = %(experiment)s AND t.raw_response IS NOT NULL"""
MEASURE = """SELECT count(*), coalesce(sum(pg_column_size(raw_response)), 0)::bigint
    FROM {table} WHERE id IN ({keys})"""
REMOVE = """UPDATE {table} t SET raw_response = NULL, raw_removed_at = now(),
        raw_sha256 = encode(sha256(convert_to(t.raw_response, 'UTF8')), 'hex')
    FROM runs_app_run r WHERE r.id = t.run_id AND r.experiment_id = %(experiment)s
    AND t.id > %(low)s AND t.id <= %(high)s AND t.raw_response IS NOT NULL"""


@dataclass(frozen=True, slots=True)
class StoredRawResponses:
    """The raw responses of an experiment: their number, and their bytes in the database, compressed."""

    rows: int
    bytes: int


def find_due(days: int) -> Iterator[Experiment]:
    """Yield the experiments whose raw responses the rule removes: all runs ended `days` ago or earlier, and are graded.

    A stopped or paused run has not ended, because it can be resumed.
    """
    ended = timezone.now() - timedelta(days=days)
    runs = Run.objects.filter(experiment=OuterRef("pk"))
    other = runs.exclude(status__in=[Run.Status.DONE, Run.Status.CANCELLED], n_running=0, finished_at__lte=ended)
    for experiment in Experiment.objects.filter(Exists(runs)).exclude(Exists(other)):
        raw = {"run__experiment": experiment, "raw_response__isnull": False}
        if any(rows.objects.filter(**raw).exists() for rows in (Trial, Attempt)) and is_graded(experiment):
            yield experiment


def measure_raw_responses(experiment: Experiment) -> StoredRawResponses:
    statements = [MEASURE.format(table=table, keys=KEYS.format(table=table)) for table in TABLES]
    sizes = [fetch_rows(statement, {"experiment": experiment.pk})[0] for statement in statements]
    return StoredRawResponses(*(sum(column) for column in zip(*sizes, strict=True)))


def remove_raw_responses(days: int, *, by: Actor, seconds: float = math.inf) -> int:
    """Remove the raw responses that are due, page by page, and return their number. After `seconds` the work stops.

    Each page is a transaction of its own. The next call continues.
    """
    end = time.monotonic() + seconds
    removed = 0
    for experiment in find_due(days):
        n = 0
        for table in TABLES:
            params = {"experiment": experiment.pk}
            for low, high in iterate_key_ranges(KEYS.format(table=table), params, PAGE):
                if time.monotonic() >= end:
                    break
                with connection.cursor() as cursor:
                    cursor.execute(REMOVE.format(table=table), {**params, "low": low, "high": high})
                    n += cursor.rowcount
        if n:
            change = (experiment, "", f"{format_count(n)} removed")
            record_changes([change], by=by, reason=f"after {days} days", aspect="raw responses")
        removed += n
    return removed
