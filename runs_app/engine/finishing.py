"""How a run ends by itself: when nothing is left to do, or when too much of it fails for good since it was started."""

from __future__ import annotations

from collections.abc import Collection

from django.db import connection
from django.db.models.functions import Now

from runs_app.engine.starting import start_queued
from runs_app.models import Run
from runs_app.stopping.rules import should_stop_itself
from runs_app.waking import runs_finished

# While a point is open its next round may yet be planned, so its run has not come to an end.
ALL_ENDED = """r.n_pending + r.n_running = 0
    AND NOT EXISTS (SELECT FROM runs_app_point p WHERE p.run_id = r.id AND p.status = 'open')"""
ENDING = f"""
SELECT r.id, {ALL_ENDED}, r.n_attempts - r.attempts_before, r.n_permanent - r.permanent_before,
    e.stop_failure_rate, e.stop_after_attempts
FROM runs_app_run r JOIN runs_app_experiment e ON e.id = r.experiment_id
WHERE r.id = ANY(%s) AND (
    (r.status IN ('running', 'paused', 'stopped') AND {ALL_ENDED})
    OR (r.status = 'running' AND r.n_permanent > r.permanent_before))
"""  # noqa: S608 - the text above


def finish_runs(run_ids: Collection[int]) -> None:
    """Within the transaction that moved their trials, whose locks make the counters the truth."""
    with connection.cursor() as cursor:
        cursor.execute(ENDING, [sorted(run_ids)])
        rows = cursor.fetchall()
    finished = [row[0] for row in rows if row[1]]
    if finished:
        _finish(finished)
    for run_id, ended, attempts, permanent, rate, minimum in rows:
        if not ended and (reason := should_stop_itself(attempts, permanent, threshold=rate, minimum=minimum)):
            Run.objects.filter(pk=run_id).transition(
                sources=[Run.Status.RUNNING], target=Run.Status.STOPPED, by="engine", reason=reason, stop_reason=reason
            )


def _finish(run_ids: list[int]) -> None:
    Run.objects.filter(pk__in=run_ids).transition(
        sources=[Run.Status.RUNNING, Run.Status.PAUSED, Run.Status.STOPPED],
        target=Run.Status.DONE,
        by="engine",
        reason="Every trial has ended.",
        finished_at=Now(),
        stop_reason="",
        paused_by_budget=False,
    )
    start_queued(Run.objects.filter(pk__in=run_ids).values_list("experiment_id", flat=True).distinct())
    runs_finished(run_ids)
