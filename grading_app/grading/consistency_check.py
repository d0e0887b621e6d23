"""The consistency check, which compares counters and ledger with the rows that they count."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, Sum

from evalsite.lib.sql import fetch_rows
from grading_app.grading.adaptive_decisions import recount_decided_points
from grading_app.models import StoredRows
from runs_app.engine.counters import RUNNING_TRIALS
from runs_app.models import Attempt, Experiment, LedgerEntry, Run
from runs_app.models.totals import STATUSES

BATCH = 100  # Runs of one update.

OF_TRIALS = {f"n_{status}": f"count(*) FILTER (WHERE status = '{status}')" for status in STATUSES}
OF_CALLS = {
    "n_attempts": "count(*)",
    "n_permanent": "count(*) FILTER (WHERE outcome = 'permanent')",
    "n_unpriced": "count(*) FILTER (WHERE cost_usd IS NULL)",
    "spent_usd": "sum(cost_usd)",
    "input_tokens": "sum(input_tokens)",
    "output_tokens": "sum(output_tokens)",
}
RUN_COLUMNS = (*OF_TRIALS, *OF_CALLS)
RUNS = """
WITH trials AS (SELECT run_id, {of_trials} FROM runs_app_trial WHERE {of_runs} GROUP BY run_id),
calls AS (SELECT run_id, {of_calls} FROM runs_app_attempt WHERE {of_runs} GROUP BY run_id)
SELECT r.id, {columns}
FROM runs_app_run r LEFT JOIN trials ON trials.run_id = r.id LEFT JOIN calls ON calls.run_id = r.id
WHERE r.experiment_id NOT IN (SELECT experiment_id FROM grading_app_storedrows)
    AND r.experiment_id = coalesce(%(experiment)s, r.experiment_id)
"""

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

TOKENS = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")
UNUSABLE = ("empty", "truncated", "refused", "unparsed")
LEDGER_SUMS = {
    "attempts": "count(*)",
    "answered": "count(*) FILTER (WHERE outcome = 'ok')",
    "reused": "count(*) FILTER (WHERE outcome = 'cached')",
    **{name: f"sum({name})" for name in TOKENS},
    "list_usd": "sum(coalesce(list_usd, cost_usd)) FILTER (WHERE cost_usd IS NOT NULL)",
    "paid_usd": "sum(cost_usd)",
    "cache_saved_usd": "sum(list_usd - cost_usd) FILTER (WHERE outcome <> 'cached' AND NOT batched)",
    "batch_saved_usd": "sum(list_usd - cost_usd) FILTER (WHERE outcome <> 'cached' AND batched)",
    "reuse_saved_usd": "sum(list_usd - cost_usd) FILTER (WHERE outcome = 'cached')",
    "unpriced": "count(*) FILTER (WHERE cost_usd IS NULL)",
    "kept_usd": "sum(kept_usd)",
    **{kind: f"count(*) FILTER (WHERE outcome IN ('ok', 'cached') AND {kind})" for kind in UNUSABLE},
}
"""The columns of a ledger entry, and the SQL that computes each from its attempts."""
# Preflights do not count kinds of unusable answers. No batch and no cached response answers them.
PREFLIGHT_SUMS = {
    **LEDGER_SUMS,
    "answered": "count(*) FILTER (WHERE status = 'ok')",
    "cache_saved_usd": "sum(list_usd - cost_usd)",
    **dict.fromkeys(("reused", "batch_saved_usd", "reuse_saved_usd", *UNUSABLE), "0"),
}
# A full join, because an entry without attempts is a difference, and so are attempts without an entry.
LEDGER = """
WITH calls AS (
    SELECT run_id, date_bin('15 minutes', finished_at, 'epoch') AS at, {of_calls}
    FROM runs_app_attempt WHERE {of_runs} GROUP BY 1, 2
)
SELECT coalesce(l.run_id, calls.run_id) || ' from ' || coalesce(l.at, calls.at), {columns}
FROM (SELECT run_id, at, {sums} FROM runs_app_ledgerentry
    WHERE run_id NOT IN ({stored_runs}) AND {of_runs} GROUP BY 1, 2) l
FULL JOIN calls ON calls.run_id = l.run_id AND calls.at = l.at
"""
PREFLIGHT_LEDGER = """
WITH calls AS (
    SELECT model_id, coalesce(experiment_id, 0) AS experiment, date_bin('15 minutes', finished_at, 'epoch') AS at,
        {of_calls}
    FROM runs_app_preflight WHERE started_at IS NOT NULL AND finished_at IS NOT NULL GROUP BY 1, 2, 3
), entries AS (SELECT *, coalesce(experiment_id, 0) AS experiment FROM runs_app_ledgerentry WHERE run_id IS NULL)
SELECT coalesce(l.model_id, calls.model_id) || ' of experiment ' || coalesce(l.experiment, calls.experiment)
    || ' from ' || coalesce(l.at, calls.at), {columns}
FROM entries l
FULL JOIN calls ON calls.model_id = l.model_id AND calls.experiment = l.experiment AND calls.at = l.at
"""
# Only of decided points, whose grades grading recounts. `answers` is n_total + n_unread.
POINT_COUNTERS = ("n_correct", "n_truncated", "n_failed", "answers", "n_rated_items", "mean", "spread")


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
        *_compare_rows("ledger of run", _build_ledger_sql(LEDGER, LEDGER_SUMS, of_runs), LEDGER_SUMS, key),
        *compare_points(experiment),
        *_compare_stored(experiment),
    ]
    if experiment is None:
        differences += [
            *_compare_rows("endpoint", ENDPOINTS, ("in_flight", "in_batches")),
            *_compare_rows("preflights of model", _build_ledger_sql(PREFLIGHT_LEDGER, PREFLIGHT_SUMS), PREFLIGHT_SUMS),
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
    sums: Any = ledger.annotate(**{f"sum_{name}": Sum(name) for name in LEDGER_SUMS}).order_by("run")
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
    sources = {**dict.fromkeys(OF_TRIALS, "trials"), **dict.fromkeys(OF_CALLS, "calls")}
    return RUNS.format(
        of_trials=_name_columns(OF_TRIALS),
        of_calls=_name_columns(OF_CALLS),
        of_runs=of_runs,
        columns=", ".join(f"r.{name}, coalesce({source}.{name}, 0)" for name, source in sources.items()),
    )


def _build_ledger_sql(template: str, sums: Mapping[str, str], of_runs: str = "") -> str:
    return template.format(
        of_calls=_name_columns(sums),
        columns=", ".join(f"coalesce(l.{name}, 0), coalesce(calls.{name}, 0)" for name in sums),
        sums=_name_columns({name: f"sum({name})" for name in sums}),
        stored_runs=STORED_RUNS,
        of_runs=of_runs,
    )


def _name_columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{source} AS {name}" for name, source in columns.items())


def _compare_rows(kind: str, sql: str, counters: Iterable[str], experiment: int | None = None) -> list[Difference]:
    """Compare rows of (id, counted, in rows, counted, in rows, ...), with one pair for each counter."""
    return _list_differences(kind, counters, fetch_rows(sql, {"experiment": experiment}))


def _list_differences(kind: str, counters: Iterable[str], rows: Iterable[Sequence[Any]]) -> list[Difference]:
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
