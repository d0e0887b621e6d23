"""Rounds of adaptive runs: find the points whose trials have all ended, and write the decisions about them.

`grading_app` decides whether a point has enough answers (`runs_app.grading_interface`). Decisions are not kept in
memory. If one was not written, the next check finds its point again.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from evalsite.lib.sql import fetch_rows
from runs_app.engine.claim_order import make_place_sql
from runs_app.engine.counters import CounterKeys, add_pending
from runs_app.engine.run_lifecycle import finish_runs
from runs_app.grading_interface import grading
from runs_app.models import Experiment, Point, Run
from runs_app.stopping.rules import Decision, PointRatings, Tally

MAX_POINTS_PER_CHECK = 100  # Their answers are graded together, in the thread that also writes results.
CHECK_S = 1.0

# All trials of a point count, including failed trials that got new attempts.
FIND_DUE = """
WITH looked_at AS MATERIALIZED (
    SELECT p.id, p.run_id, p.dimension_id, p.n_planned, p.items[1:least(p.n_planned, p.n_items)] AS items
    FROM runs_app_point p JOIN runs_app_run r ON r.id = p.run_id
    WHERE p.status = 'open' AND r.status IN ('running', 'cancelled')
), waiting AS MATERIALIZED (
    SELECT t.run_id, t.item_id, t.dimension_id FROM runs_app_trial t
    WHERE t.run_id IN (SELECT run_id FROM looked_at) AND t.status IN ('pending', 'running')
)
SELECT p.id, p.n_planned, r.id, r.experiment_id, m.endpoint_id
FROM looked_at p
JOIN runs_app_run r ON r.id = p.run_id
JOIN runs_app_condition c ON c.id = r.condition_id
JOIN runs_app_languagemodel m ON m.id = c.model_id
WHERE p.id NOT IN (
    SELECT q.id FROM looked_at q CROSS JOIN LATERAL unnest(q.items) AS one (item)
    JOIN waiting ON waiting.run_id = q.run_id AND waiting.item_id = one.item
        AND waiting.dimension_id IS NOT DISTINCT FROM q.dimension_id)
ORDER BY r.id, p.id LIMIT %(most)s
"""
# The same check for a few points, by their own trials alone. It runs while other workers wait for the locks.
STILL_DUE = """
SELECT p.id, p.n_planned FROM runs_app_point p WHERE p.id = ANY(%s) AND p.status = 'open' AND NOT EXISTS (
    SELECT FROM unnest(p.items[1:least(p.n_planned, p.n_items)]) AS one (item)
    CROSS JOIN LATERAL (
        SELECT t.status FROM runs_app_trial t WHERE t.run_id = p.run_id AND t.item_id = one.item
            AND t.dimension_id IS NOT DISTINCT FROM p.dimension_id OFFSET 0
    ) AS own WHERE own.status IN ('pending', 'running'))
"""


@dataclass(frozen=True, slots=True)
class PointDecision:
    """A decision about a point whose round is complete: its counts, and its number of cases after the decision.

    `upto` equals `cases` if the point gets no more cases. `graded_by` names the rule that scored its answers, with its
    version, in the form of a grade condition's name.
    """

    point: int
    cases: int
    tally: Tally | PointRatings
    unread: int
    failed: int
    decision: Decision
    upto: int
    graded_by: str


def find_due_points() -> dict[CounterKeys, dict[int, int]]:
    """Return the number of cases of each open point without pending or running trials, by run and point id."""
    with connection.cursor() as cursor:
        cursor.execute(FIND_DUE, {"most": MAX_POINTS_PER_CHECK})
        cases_by_run: dict[CounterKeys, dict[int, int]] = defaultdict(dict)
        for point, cases, *counter_keys in cursor.fetchall():
            cases_by_run[CounterKeys(*counter_keys)][point] = cases
    return dict(cases_by_run)


def write_decisions(counter_keys: CounterKeys, decisions: Sequence[PointDecision]) -> int:
    """Write decisions and plan the next rounds in one transaction. Return the number of points written.

    If two workers decide at once, the run's lock orders them. The second finds the points closed or in another round.
    """
    with transaction.atomic():
        status = _lock(counter_keys)
        cases_by_point = _find_still_due([row.point for row in decisions])
        current = [row for row in decisions if cases_by_point.get(row.point) == row.cases]
        continuing = {row.point: row.upto for row in current if row.decision.kind == "more" and status != "cancelled"}
        _write(current, is_cancelled=status == "cancelled")
        if n_new := add_cases(continuing):
            add_pending(counter_keys.run_id, n_new)
        finish_runs({counter_keys.run_id})
    return len(current)


def _find_still_due(points: list[int]) -> dict[int, int]:
    return dict(fetch_rows(STILL_DUE, [points]))


def _lock(counter_keys: CounterKeys) -> str:
    """Lock the experiment and the run, and return the run's status.

    The endpoint needs no lock, because no call starts or ends here. The experiment needs one, because the end of a run
    may start the next run.
    """
    list(Experiment.objects.select_for_update(no_key=True).filter(pk=counter_keys.experiment_id).values_list("pk"))
    return str(Run.objects.select_for_update(no_key=True).values_list("status", flat=True).get(pk=counter_keys.run_id))


# Trials of a pilot may exist already. ON CONFLICT would wait for a worker that records one of them, and that worker may
# wait for locks of this transaction: a deadlock. NOT EXISTS is safe, because no other process adds trials meanwhile.
PLACE = make_place_sql("drawn.item", "repetition", "e.shuffle")
ADD_CASES = f"""
INSERT INTO runs_app_trial (run_id, sample_idx, item_id, dimension_id, place)
SELECT p.run_id, repetition, drawn.item, p.dimension_id, {PLACE}
FROM unnest(%(points)s::bigint[], %(upto)s::int[]) AS target (point, upto)
JOIN runs_app_point p ON p.id = target.point
JOIN runs_app_run r ON r.id = p.run_id JOIN runs_app_experiment e ON e.id = r.experiment_id
CROSS JOIN LATERAL unnest(p.items) WITH ORDINALITY AS drawn (item, place)
CROSS JOIN LATERAL generate_series(p.n_planned / p.n_items, (target.upto - 1) / p.n_items) AS repetition
WHERE repetition * p.n_items + drawn.place - 1 >= p.n_planned
    AND repetition * p.n_items + drawn.place <= target.upto
    AND NOT EXISTS (SELECT FROM runs_app_trial t
        WHERE t.run_id = p.run_id AND t.item_id = drawn.item AND t.sample_idx = repetition
            AND t.dimension_id IS NOT DISTINCT FROM p.dimension_id)
ORDER BY repetition, drawn.place, p.id
"""  # noqa: S608 - the text above
COUNT_CASES = """
UPDATE runs_app_point p SET n_planned = target.upto
FROM unnest(%(points)s::bigint[], %(upto)s::int[]) AS target (point, upto) WHERE p.id = target.point
"""


def add_cases(upto: Mapping[int, int]) -> int:
    """Create the trials of these points up to the given numbers of cases, and return how many are new.

    The caller holds the lock of their run.
    """
    if not upto:
        return 0
    params = {"points": list(upto), "upto": list(upto.values())}
    with connection.cursor() as cursor:
        cursor.execute(ADD_CASES, params)
        n_new = int(cursor.rowcount)
        cursor.execute(COUNT_CASES, params)
    return n_new


STATUS = {
    "enough": Point.Status.ENOUGH,
    "abort": Point.Status.ABORTED,
    "exhausted": Point.Status.EXHAUSTED,
    "more": Point.Status.OPEN,
}
WRITE = """
UPDATE runs_app_point p SET status = r.status, reason = r.reason, half_width = r.half_width,
    n_correct = coalesce(r.correct, 0), n_total = r.total, n_truncated = r.truncated, n_unread = r.unread,
    n_failed = r.failed, guess_chances = coalesce(r.guess_chances, 0), n_rated_items = coalesce(r.items, 0),
    mean = r.mean, spread = r.spread, rounds = p.rounds || jsonb_build_array(r.round), decided_at = clock_timestamp()
FROM json_to_recordset(%s) r(id bigint, status text, reason text, half_width float8, correct int, total int,
    truncated int, unread int, failed int, guess_chances float8, items int, mean float8, spread float8, round jsonb)
WHERE p.id = r.id
"""


def _write(decisions: Sequence[PointDecision], *, is_cancelled: bool) -> None:
    at = timezone.now().isoformat()
    rows = [_build_row(decision, at, is_cancelled=is_cancelled) for decision in decisions]
    with connection.cursor() as cursor:
        cursor.execute(WRITE, [json.dumps(rows)])


def _build_row(point: PointDecision, at: str, *, is_cancelled: bool) -> dict[str, Any]:
    """Return a point's columns, with the `round` to append to its earlier rounds."""
    tally, decision = point.tally, point.decision
    status, reason = STATUS[decision.kind], decision.reason
    if is_cancelled and decision.kind == "more":
        status, reason = Point.Status.CANCELLED, f"The run was cancelled: {reason}"
    decision_columns = {"status": status, "reason": reason, "half_width": decision.half_width}
    counts = {"total": tally.total, "truncated": tally.truncated, **_build_result_columns(tally)}
    return {
        "id": point.point,
        "unread": point.unread,
        "failed": point.failed,
        "guess_chances": tally.guess_chances if isinstance(tally, Tally) else 0.0,
        "round": {"at": at, "asked": point.cases, "graded_by": point.graded_by, **counts, **decision_columns},
        **counts,
        **decision_columns,
    }


def _build_result_columns(tally: Tally | PointRatings) -> dict[str, Any]:
    """Return the results of a round. Only the round stores `effective`; the point has no such column."""
    if isinstance(tally, Tally):
        return {"correct": tally.correct, "effective": tally.effective}
    mean, spread = (tally.mean, tally.spread) if tally.items else (None, None)
    return {"items": tally.items, "mean": mean, "spread": spread}


def reopen_points(run_id: int) -> None:
    """Reopen the points with failed trials, because these trials got new attempts. The caller has locked the run."""
    points = Point.objects.filter(run=run_id, n_failed__gt=0).exclude(status=Point.Status.CANCELLED)
    points.update(status=Point.Status.OPEN)


@dataclass(slots=True)
class RoundScheduler:
    """A timer of a worker's checks for complete rounds: one each second, or fewer if a check takes long."""

    next_at: float = field(default=0.0)

    def decide_if_due(self) -> int:
        """Decide the complete rounds if the next check is due. Return the number of points decided."""
        return self.decide_now() if time.monotonic() >= self.next_at else 0

    def decide_now(self) -> int:
        start = time.monotonic()
        n_points = grading().decide_rounds()
        end = time.monotonic()
        self.next_at = end + max(CHECK_S, 10 * (end - start)) if n_points < MAX_POINTS_PER_CHECK else end
        return n_points
