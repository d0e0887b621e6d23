"""The consistency check, which compares counters and ledger with the rows that they count."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, Sum

from evalsite.lib.sql import fetch_rows
from grading_app.grading.adaptive_decisions import recount_decided_points
from grading_app.models import StoredRows
from runs_app.engine.counters import RUNNING_TRIALS
from runs_app.models import Attempt, Experiment, LedgerEntry, Run

BATCH = 100  # Runs of one update.

RUNS = """
WITH units AS (
    SELECT run_id, count(*) FILTER (WHERE status = 'pending') AS n_pending,
        count(*) FILTER (WHERE status = 'running') AS n_running, count(*) FILTER (WHERE status = 'done') AS n_done,
        count(*) FILTER (WHERE status = 'failed') AS n_failed,
        count(*) FILTER (WHERE status = 'cancelled') AS n_cancelled
    FROM runs_app_trial {of_runs} GROUP BY run_id
), calls AS (
    SELECT run_id, count(*) AS n_attempts, count(*) FILTER (WHERE outcome = 'permanent') AS n_permanent,
        count(*) FILTER (WHERE cost_usd IS NULL) AS n_unpriced, coalesce(sum(cost_usd), 0) AS spent_usd,
        coalesce(sum(input_tokens), 0) AS input_tokens, coalesce(sum(output_tokens), 0) AS output_tokens
    FROM runs_app_attempt {of_runs} GROUP BY run_id
)
SELECT r.id, {columns} FROM runs_app_run r LEFT JOIN units ON units.run_id = r.id LEFT JOIN calls ON calls.run_id = r.id
WHERE r.experiment_id NOT IN (SELECT experiment_id FROM grading_app_storedrows)
    AND r.experiment_id = coalesce(%(experiment)s, r.experiment_id)
"""
RUN_COLUMNS = (
    "n_pending", "n_running", "n_done", "n_failed", "n_cancelled",
    "n_attempts", "n_permanent", "n_unpriced", "spent_usd", "input_tokens", "output_tokens",
)  # fmt: skip

EXPERIMENTS = """
SELECT e.id, e.spent_usd, coalesce((SELECT sum(cost_usd) FROM runs_app_attempt a JOIN runs_app_run r ON r.id = a.run_id
        WHERE r.experiment_id = e.id), 0)
    + coalesce((SELECT sum(cost_usd) FROM runs_app_preflight f WHERE f.experiment_id = e.id), 0)
    + coalesce((SELECT sum(spent_usd) FROM runs_app_deletedrun d WHERE d.experiment_id = e.id), 0),
    e.reserved_usd, coalesce((SELECT sum(t.reserved_usd) FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id
        WHERE r.experiment_id = e.id AND t.status = 'running'), 0)
    + coalesce((SELECT sum(kept_usd) FROM runs_app_attempt a JOIN runs_app_run r ON r.id = a.run_id
        WHERE r.experiment_id = e.id), 0)
    + coalesce((SELECT sum(reserved_usd + coalesce(kept_usd, 0)) FROM runs_app_preflight f
        WHERE f.experiment_id = e.id), 0)
    + coalesce((SELECT sum(kept_usd) FROM runs_app_deletedrun d WHERE d.experiment_id = e.id), 0)
FROM runs_app_experiment e WHERE e.id NOT IN (SELECT experiment_id FROM grading_app_storedrows)
    AND e.id = coalesce(%(experiment)s, e.id)
"""

STORED_RUNS = """SELECT r.id FROM runs_app_run r
    JOIN grading_app_storedrows s ON s.experiment_id = r.experiment_id"""

ENDPOINTS = f"""
SELECT p.id, p.in_flight, coalesce(held.in_flight, 0)
        + (SELECT count(*) FROM runs_app_preflight f WHERE f.status = 'running' AND f.endpoint_id = p.id),
    p.in_batches, coalesce(held.in_batches, 0)
FROM runs_app_endpoint p LEFT JOIN (
    SELECT m.endpoint_id, sum(claimed.leased)::int AS in_flight, sum(claimed.n - claimed.leased)::int AS in_batches
    FROM runs_app_run r CROSS JOIN LATERAL (
        SELECT count(*) AS n, count(t.lease_until) AS leased FROM {RUNNING_TRIALS} t
    ) claimed
    JOIN runs_app_condition c ON c.id = r.condition_id JOIN runs_app_languagemodel m ON m.id = c.model_id
    GROUP BY m.endpoint_id
) held ON held.endpoint_id = p.id
"""  # noqa: S608 - a constant

# Case k is repetition k / n_items of item k mod n_items. Trials of a pilot beyond these cases do not count.
POINTS = f"""
SELECT p.id, p.n_planned, count(t.id) FROM runs_app_point p
CROSS JOIN LATERAL unnest(p.items) WITH ORDINALITY AS drawn (item, place)
LEFT JOIN runs_app_trial t ON t.run_id = p.run_id AND t.item_id = drawn.item
    AND t.dimension_id IS NOT DISTINCT FROM p.dimension_id
    AND t.sample_idx::bigint * p.n_items + drawn.place <= p.n_planned
WHERE p.run_id NOT IN ({STORED_RUNS})
    AND (%(experiment)s::bigint IS NULL
        OR p.run_id IN (SELECT id FROM runs_app_run WHERE experiment_id = %(experiment)s))
GROUP BY p.id
"""  # noqa: S608 - the name is above

# The runs of one experiment. Their keys pass through an array, so the planner looks them up in an index.
OF_RUNS = "run_id = ANY (ARRAY(SELECT id FROM runs_app_run WHERE experiment_id = %(experiment)s))"

# A full join, because an entry without attempts is a difference, and so are attempts without an entry.
LEDGER = """
WITH calls AS (
    SELECT run_id, date_bin('15 minutes', finished_at, 'epoch') AS at, count(*) AS attempts,
        count(*) FILTER (WHERE outcome = 'ok') AS answered, count(*) FILTER (WHERE outcome = 'cached') AS reused,
        sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
        sum(reasoning_tokens) AS reasoning_tokens, sum(cache_read_tokens) AS cache_read_tokens,
        sum(cache_write_tokens) AS cache_write_tokens, sum(cost_usd) AS paid_usd,
        sum(coalesce(list_usd, cost_usd)) FILTER (WHERE cost_usd IS NOT NULL) AS list_usd,
        sum(list_usd - cost_usd) FILTER (WHERE outcome <> 'cached' AND NOT batched) AS cache_saved_usd,
        sum(list_usd - cost_usd) FILTER (WHERE outcome <> 'cached' AND batched) AS batch_saved_usd,
        sum(list_usd - cost_usd) FILTER (WHERE outcome = 'cached') AS reuse_saved_usd,
        count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced, sum(kept_usd) AS kept_usd,
        count(*) FILTER (WHERE outcome IN ('ok', 'cached') AND empty) AS empty,
        count(*) FILTER (WHERE outcome IN ('ok', 'cached') AND truncated) AS truncated,
        count(*) FILTER (WHERE outcome IN ('ok', 'cached') AND refused) AS refused,
        count(*) FILTER (WHERE outcome IN ('ok', 'cached') AND unparsed) AS unparsed
    FROM runs_app_attempt {of_runs} GROUP BY 1, 2
)
SELECT coalesce(l.run_id, calls.run_id) || ' from ' || coalesce(l.at, calls.at), {columns}
FROM (SELECT run_id, at, {sums} FROM runs_app_ledgerentry
    WHERE run_id NOT IN ({stored_runs}) {and_of_runs} GROUP BY 1, 2) l
FULL JOIN calls ON calls.run_id = l.run_id AND calls.at = l.at
"""
# Preflights do not count kinds of unusable answers. No batch and no cached response answers them.
PREFLIGHT_LEDGER = """
WITH calls AS (
    SELECT model_id, coalesce(experiment_id, 0) AS experiment, date_bin('15 minutes', finished_at, 'epoch') AS at,
        count(*) AS attempts, count(*) FILTER (WHERE status = 'ok') AS answered,
        sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
        sum(reasoning_tokens) AS reasoning_tokens, sum(cache_read_tokens) AS cache_read_tokens,
        sum(cache_write_tokens) AS cache_write_tokens, sum(cost_usd) AS paid_usd,
        sum(coalesce(list_usd, cost_usd)) FILTER (WHERE cost_usd IS NOT NULL) AS list_usd,
        sum(list_usd - cost_usd) AS cache_saved_usd, count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced,
        sum(kept_usd) AS kept_usd, 0 AS reused, 0 AS batch_saved_usd, 0 AS reuse_saved_usd,
        0 AS empty, 0 AS truncated, 0 AS refused, 0 AS unparsed
    FROM runs_app_preflight WHERE started_at IS NOT NULL AND finished_at IS NOT NULL GROUP BY 1, 2, 3
), entries AS (SELECT *, coalesce(experiment_id, 0) AS experiment FROM runs_app_ledgerentry WHERE run_id IS NULL)
SELECT coalesce(l.model_id, calls.model_id) || ' of experiment ' || coalesce(l.experiment, calls.experiment)
    || ' from ' || coalesce(l.at, calls.at), {columns}
FROM entries l
FULL JOIN calls ON calls.model_id = l.model_id AND calls.experiment = l.experiment AND calls.at = l.at
"""
# Only of decided points, whose grades grading recounts. `answers` is n_total + n_unread.
POINT_COUNTERS = ("n_correct", "n_truncated", "n_failed", "answers", "n_rated_items", "mean", "spread")
LEDGER_COLUMNS = (
    "attempts", "answered", "reused",
    "input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens",
    "list_usd", "paid_usd", "cache_saved_usd", "batch_saved_usd", "reuse_saved_usd", "unpriced", "kept_usd",
    "empty", "truncated", "refused", "unparsed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """A counter that differs from the rows."""

    row: str
    counter: str
    counted: Any
    in_rows: Any

    def __str__(self) -> str:
        return f"{self.row}: {self.counter} is {self.counted}, the rows say {self.in_rows}"


def find_differences() -> list[Difference]:
    """Compare every counter with its rows and return the differences.

    The check reads one snapshot, so work in progress is not a difference.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return compare_counters()


def compare_counters(experiment: Experiment | None = None) -> list[Difference]:
    """Return the differences that this transaction sees.

    experiment: compare only its counters, and read only its rows. None for all, and for those of endpoints and
    preflights.
    """
    key = experiment.pk if experiment else None
    of_runs = OF_RUNS if experiment else "run_id IS NOT NULL"
    differences = [
        *_compare_rows("run", _build_runs_sql(of_runs), RUN_COLUMNS, key),
        *_compare_rows("experiment", EXPERIMENTS, ("spent_usd", "reserved_usd"), key),
        *_compare_rows("ledger of run", _build_ledger_sql(LEDGER, of_runs), LEDGER_COLUMNS, key),
        *compare_points(experiment),
        *_compare_stored(experiment),
    ]
    if experiment is None:
        differences += [
            *_compare_rows("endpoint", ENDPOINTS, ("in_flight", "in_batches")),
            *_compare_rows("preflights of model", _build_ledger_sql(PREFLIGHT_LEDGER), LEDGER_COLUMNS),
        ]
    return differences


def compare_points(experiment: Experiment | None = None) -> list[Difference]:
    """Return the differences of the points of one experiment, or of all."""
    return [
        *_compare_rows("point", POINTS, ("n_planned",), experiment.pk if experiment else None),
        *_list_differences("point", POINT_COUNTERS, recount_decided_points(experiment)),
    ]


def recount(experiment: Experiment) -> None:
    """Set the counters of an experiment without running trials, and what it spent, to what its rows say."""
    by_class = Attempt.objects.filter(run__experiment=experiment).exclude(error_class="").order_by()
    errors: dict[int, dict[str, int]] = defaultdict(dict)
    for run, name, number in by_class.values_list("run", "error_class").annotate(number=Count("pk")):
        errors[run][name] = number
    runs = experiment.runs.in_bulk()
    for key, *pairs in fetch_rows(_build_runs_sql(OF_RUNS), {"experiment": experiment.pk}):
        run = runs[key]
        for name, in_rows in zip(RUN_COLUMNS, pairs[1::2], strict=True):
            setattr(run, name, in_rows)
        run.errors = errors[key]
        run.attempts_before = min(run.attempts_before, run.n_attempts)
        run.permanent_before = min(run.permanent_before, run.n_permanent)
    ((_, _, spent, _, reserved),) = fetch_rows(EXPERIMENTS, {"experiment": experiment.pk})
    Run.objects.bulk_update(runs.values(), [*RUN_COLUMNS, "errors", "attempts_before", "permanent_before"], BATCH)
    Experiment.objects.filter(pk=experiment.pk).update(spent_usd=spent, reserved_usd=reserved)


def read_counters(experiment: Experiment) -> dict[str, dict[str, str]]:
    """Return the counters of an experiment, its runs and their ledger, by row and name, as texts."""
    runs = experiment.runs.order_by("pk")
    ledger = LedgerEntry.objects.filter(run__experiment=experiment).order_by().values("run")
    sums: Any = ledger.annotate(**{f"sum_{name}": Sum(name) for name in LEDGER_COLUMNS}).order_by("run")
    return {
        f"experiment {experiment.pk}": {name: str(getattr(experiment, name)) for name in ("spent_usd", "reserved_usd")},
        **{f"run {row.pop('pk')}": _format_values(row) for row in runs.values("pk", *RUN_COLUMNS)},
        **{f"ledger of run {row.pop('run')}": _format_values(row) for row in sums},
    }


def _format_values(row: dict[str, Any]) -> dict[str, str]:
    return {name.removeprefix("sum_"): str(value) for name, value in row.items()}


def _compare_stored(experiment: Experiment | None) -> list[Difference]:
    """Compare the counters of stored experiments with those at the time when their rows moved to a file."""
    rows = StoredRows.objects.select_related("experiment")
    return [
        Difference(row, name, now.get(row, {}).get(name), counters[name])
        for stored in (rows.filter(experiment=experiment) if experiment else rows)
        for now in [read_counters(stored.experiment)]
        for row, counters in stored.counters.items()
        for name in counters
        if now.get(row, {}).get(name) != counters[name]
    ]


def _build_runs_sql(of_runs: str) -> str:
    sources = {name: "units" if name in RUN_COLUMNS[:5] else "calls" for name in RUN_COLUMNS}
    columns = ", ".join(f"r.{name}, coalesce({source}.{name}, 0)" for name, source in sources.items())
    return RUNS.format(of_runs=f"WHERE {of_runs}", columns=columns)


def _build_ledger_sql(template: str, of_runs: str = "") -> str:
    pairs = (f"coalesce(l.{name}, 0), coalesce(calls.{name}, 0)" for name in LEDGER_COLUMNS)
    sums = (f"sum({name}) AS {name}" for name in LEDGER_COLUMNS)
    return template.format(
        columns=", ".join(pairs),
        sums=", ".join(sums),
        stored_runs=STORED_RUNS,
        of_runs=f"WHERE {of_runs}",
        and_of_runs=f"AND {of_runs}",
    )


def _compare_rows(kind: str, sql: str, counters: tuple[str, ...], experiment: int | None = None) -> list[Difference]:
    """Compare rows of (id, counted, in rows, counted, in rows, ...), with one pair for each counter."""
    return _list_differences(kind, counters, fetch_rows(sql, {"experiment": experiment}))


def _list_differences(kind: str, counters: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[Difference]:
    return [
        Difference(f"{kind} {row[0]}", counter, counted, in_rows)
        for row in rows
        for counter, counted, in_rows in zip(counters, row[1::2], row[2::2], strict=True)
        if not _is_equal(counted, in_rows)
    ]


def _is_equal(counted: Any, in_rows: Any) -> bool:
    # Floats may differ in their last digits, because the order of addition differs.
    if isinstance(counted, float) and isinstance(in_rows, float):
        return math.isclose(counted, in_rows, rel_tol=1e-9, abs_tol=1e-9)
    return bool(counted == in_rows)
