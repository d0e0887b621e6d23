"""The start and end of runs: in parallel, or one after another if the experiment is sequential."""

from __future__ import annotations

from collections.abc import Collection

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from evalsite.lib.history import Actor
from evalsite.lib.sql import fetch_rows
from runs_app.models import Run
from runs_app.models.runs import RunQuerySet
from runs_app.stopping.rules import find_stop_reason
from runs_app.taskqueue.enqueue import enqueue_grading


def start_runs(runs: RunQuerySet, *, sources: Collection[str], by: Actor, reason: str) -> list[int]:
    """Start the runs that have one of the `sources` statuses, which must not include QUEUED. Return their ids.

    Runs of a sequential experiment are queued for their turn. Earlier failures no longer count towards stopping,
    because the user who starts a run again has corrected their cause. The caller holds the locks, within a transaction.
    """
    sequential = runs.generating().filter(experiment__sequential=True)
    queued = _start(sequential, Run.Status.QUEUED, sources, by, reason)
    start_next_queued(Run.objects.filter(pk__in=queued).values_list("experiment_id", flat=True).distinct())
    return [*queued, *_start(runs, Run.Status.RUNNING, sources, by, reason)]


def _start(runs: RunQuerySet, target: str, sources: Collection[str], by: Actor, reason: str) -> list[int]:
    return runs.transition(
        sources=sources,
        target=target,
        by=by,
        reason=reason,
        finished_at=None,
        stop_reason="",
        paused_by_budget=False,
        attempts_before=F("n_attempts"),
        permanent_before=F("n_permanent"),
        rejections=0,
    )


def start_next_queued(experiment_ids: Collection[int]) -> None:
    """Start the next queued run of each experiment that has no running, paused or stopped run."""
    for experiment_id in experiment_ids:
        runs = Run.objects.answering([experiment_id])
        if runs.filter(status__in=[Run.Status.RUNNING, Run.Status.PAUSED, Run.Status.STOPPED]).exists():
            continue
        upcoming = runs.filter(status=Run.Status.QUEUED).order_by("pk").values_list("pk", flat=True)[:1]
        Run.objects.filter(pk__in=list(upcoming)).transition(
            sources=[Run.Status.QUEUED], target=Run.Status.RUNNING, by="engine", reason="Its turn in the sequence."
        )


# While a point is open, its next round may still be planned, so its run has not ended.
ALL_ENDED = """r.n_pending + r.n_running = 0
    AND NOT EXISTS (SELECT FROM runs_app_point p WHERE p.run_id = r.id AND p.status = 'open')"""
ENDING = f"""
SELECT r.id, {ALL_ENDED}, r.n_attempts - r.attempts_before, r.n_permanent - r.permanent_before,
    e.stop_failure_rate, e.stop_after_attempts, r.rejections
FROM runs_app_run r JOIN runs_app_experiment e ON e.id = r.experiment_id
WHERE r.id = ANY(%s) AND (
    (r.status IN ('running', 'paused', 'stopped') AND {ALL_ENDED})
    OR (r.status = 'running' AND (r.n_permanent > r.permanent_before OR r.rejections > 0)))
"""  # noqa: S608 - the text above


def finish_runs(run_ids: Collection[int]) -> None:
    """End or stop these runs if their counters require it.

    Call this in the transaction that moved their trials. Its locks make the counters exact.
    """
    rows = fetch_rows(ENDING, [sorted(run_ids)])
    finished = [row[0] for row in rows if row[1]]
    if finished:
        _finish(finished)
    for run_id, is_finished, attempts, permanent, rate, minimum, rejections in rows:
        if is_finished:
            continue
        if reason := find_stop_reason(attempts, permanent, threshold=rate, minimum=minimum):
            stop_runs([run_id], reason)
        elif is_rejected_too_often(rejections):
            stop_runs([run_id], _describe_rejections(run_id, rejections))


def is_rejected_too_often(rejections: int) -> bool:
    """Return whether a run must stop that has caused this many pauses in a row by status 429."""
    return rejections >= settings.RATE_LIMIT_PAUSES


def _describe_rejections(run_id: int, n: int) -> str:
    model = Run.objects.select_related("condition__model__endpoint").get(pk=run_id).condition.model
    return (
        f"Model {model} at endpoint {model.endpoint} answered 429 (too many requests) {n} times in a row, after ever"
        " longer pauses. Check its rate limit or quota, then resume the run."
    )


def stop_runs(run_ids: Collection[int], reason: str) -> None:
    """Stop these runs. Their trials stay pending. The caller holds the locks, within a transaction."""
    Run.objects.filter(pk__in=run_ids).transition(
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
    start_next_queued(Run.objects.filter(pk__in=run_ids).values_list("experiment_id", flat=True).distinct())
    enqueue_grading(run_ids)
