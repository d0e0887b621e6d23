"""How runs begin, and begin again: side by side, or one after the other where their experiment says so."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import F

from datasets_app.models.history import Actor
from runs_app.models import Run
from runs_app.models.runs import RunQuerySet


def start(runs: RunQuerySet, *, sources: Collection[str], by: Actor, reason: str) -> list[int]:
    """Claims begin for those that are in one of `sources`, which QUEUED is not. Returns the keys of those that moved.

    Runs of a design in sequence wait for their turn. What failed until now counts no longer towards stopping: who
    starts a run again has mended what it was. The caller holds the locks, within a transaction.
    """
    in_turn = runs.generating().filter(experiment__sequential=True)
    queued = _move(in_turn, Run.Status.QUEUED, sources, by, reason)
    start_queued(Run.objects.filter(pk__in=queued).values_list("experiment_id", flat=True).distinct())
    return [*queued, *_move(runs, Run.Status.RUNNING, sources, by, reason)]


def _move(runs: RunQuerySet, target: str, sources: Collection[str], by: Actor, reason: str) -> list[int]:
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
    )


def start_queued(experiment_ids: Collection[int]) -> None:
    """Where conditions run in sequence, the next one starts when none of its experiment is running, or is to go on."""
    for experiment_id in experiment_ids:
        runs = Run.objects.generating().filter(experiment_id=experiment_id)
        if runs.filter(status__in=[Run.Status.RUNNING, Run.Status.PAUSED, Run.Status.STOPPED]).exists():
            continue
        upcoming = runs.filter(status=Run.Status.QUEUED).order_by("pk").values_list("pk", flat=True)[:1]
        Run.objects.filter(pk__in=list(upcoming)).transition(
            sources=[Run.Status.QUEUED], target=Run.Status.RUNNING, by="engine", reason="Its turn in the sequence."
        )
