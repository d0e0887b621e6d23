"""Launch, pause, resume, cancel, retry: what people do to runs. All workers mind it at their next claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Now

from datasets_app.models.history import Actor, record_changes
from runs_app.bounds import BOUNDS
from runs_app.engine.adaptive_rounds import reopen_points
from runs_app.engine.counters import CounterDeltas, CounterKeys, lock_rows
from runs_app.engine.run_lifecycle import start_next_queued, start_runs
from runs_app.models import Experiment, ProviderBatch, Run
from runs_app.models.runs import RunQuerySet
from runs_app.planning.cost_estimate import Estimate
from runs_app.planning.extension import DEFAULT_REASON, Extension, add_rows, problems_with
from runs_app.planning.manifests import write_manifest
from runs_app.planning.plan import PlanError, PlanReport, plan
from runs_app.taskqueue.enqueue import wake


class LaunchError(Exception):
    """Why nothing was launched."""


def launch(
    experiment: Experiment,
    *,
    by: Actor,
    wave: str = "",
    pilot: int | None = None,
    approved: Estimate | None = None,
    reason: str = "",
    only: Collection[str] | None = None,
    policy: str | None = None,
) -> PlanReport:
    """Plan what is missing, or so many trials of it as a pilot, write the manifest, and start.

    `only` are ids of the cells that are launched; None is all. `policy` is a budget policy instead of the design's.
    Launches of one experiment take turns. One that finds nothing to add and nothing to start changes nothing, and
    writes no manifest. `approved` is the estimate that was seen, for the manifest. PlanError or LaunchError when that
    cannot be.
    """
    reason = reason or ("launched" if pilot is None else f"launched, a pilot of {pilot}")
    with transaction.atomic():
        locked = Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
        if locked.status == Experiment.Status.ARCHIVED:
            raise LaunchError(f"{experiment} is archived")
        report = plan(experiment, wave_label=wave, by=by, pilot=pilot, only=only, policy=policy)
        activated = Experiment.objects.filter(pk=experiment.pk).transition(
            sources=[Experiment.Status.DRAFT], target=Experiment.Status.ACTIVE, by=by, reason=reason
        )
        runs = Run.objects.generating().filter(experiment=experiment, wave__label=wave, n_pending__gt=0)
        runs = runs if only is None else runs.filter(pk__in=report.run_ids)
        started = start_runs(runs, sources=[Run.Status.PLANNED, Run.Status.DONE], by=by, reason=reason)
        is_new = bool(activated or started or report.trials_added)
        if is_new:
            write_manifest(experiment, by=by, wave=wave, pilot=pilot, approved=approved, only=only, policy=policy)
    experiment.refresh_from_db()
    wake()
    return replace(report, is_new=is_new, notes=list(_left_as_they_are(report.run_ids)))


def _left_as_they_are(run_ids: Collection[int]) -> Iterator[str]:
    """Yield what a launch does not start, and how each can go on."""
    states = Counter(Run.objects.filter(pk__in=run_ids).values_list("status", flat=True))
    if n := states[Run.Status.CANCELLED]:
        yield (
            f"{_are(n)} cancelled and {'stays' if n == 1 else 'stay'} so, without new trials. "
            "To ask again, launch under a new wave label."
        )
    if n := states[Run.Status.PAUSED] + states[Run.Status.STOPPED]:
        yield f"{_are(n)} paused or stopped. Resume {'it' if n == 1 else 'them'} to go on."


def _are(n: int) -> str:
    return "1 run is" if n == 1 else f"{n:,} runs are"


def extend(
    experiment: Experiment,
    extension: Extension,
    *,
    by: Actor,
    reason: str = "",
    wave: str = "",
    approved: Estimate | None = None,
) -> PlanReport:
    """Add rows to a launched design, plan what is missing of this wave, and start it. What was asked stays as it is.

    `approved` is the estimate that was seen, for the manifest. PlanError or LaunchError, and then nothing has changed.
    """
    with transaction.atomic():
        locked = Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
        if problems := list(problems_with(locked, extension)):
            raise PlanError(problems)
        add_rows(locked, extension, by=by, reason=reason)
        report = launch(locked, by=by, wave=wave, approved=approved, reason=reason or DEFAULT_REASON)
    experiment.refresh_from_db()
    return report


def pause(runs: RunQuerySet, *, by: Actor, reason: str = "") -> list[int]:
    """No more claims; what is in flight is answered and recorded."""
    with transaction.atomic():
        lock_rows(set(_places(runs)))
        return runs.transition(
            sources=[Run.Status.RUNNING, Run.Status.QUEUED],
            target=Run.Status.PAUSED,
            by=by,
            reason=reason,
            stop_reason=reason,
        )


def resume(runs: RunQuerySet, *, by: Actor, reason: str = "") -> list[int]:
    """They go on, those of a design in sequence in their turn; what failed until now does not stop them again."""
    with transaction.atomic():
        lock_rows(set(_places(runs)))
        moved = start_runs(runs, sources=[Run.Status.PAUSED, Run.Status.STOPPED], by=by, reason=reason)
    wake()
    return moved


CANCEL_PENDING = """
UPDATE runs_app_trial SET status = 'cancelled', not_before = NULL, completed_at = clock_timestamp()
WHERE run_id = %s AND status = 'pending'
"""


def cancel(runs: RunQuerySet, *, by: Actor, reason: str = "") -> list[int]:
    """What is pending never starts; what is in flight is paid for, so it is still recorded.

    Open batches are cancelled at their provider; what they have answered by then is recorded, too.
    """
    live = [Run.Status.PLANNED, Run.Status.QUEUED, Run.Status.RUNNING, Run.Status.PAUSED, Run.Status.STOPPED]
    moved = []
    for place in reversed(_places(runs)):  # Of a sequence the last one first, lest the next start in between.
        with transaction.atomic():
            lock_rows({place})
            run = Run.objects.filter(pk=place.run_id)
            if run.transition(
                sources=live,
                target=Run.Status.CANCELLED,
                by=by,
                reason=reason,
                stop_reason=reason,
                finished_at=Now(),
            ):
                _move_trials(place, CANCEL_PENDING, [place.run_id], before="pending", after="cancelled")
                ProviderBatch.objects.filter(run=place.run_id).request_cancel(by=by, reason=reason)
                start_next_queued([place.experiment_id])
                moved.append(place.run_id)
    return moved


def cancel_batch(batch: ProviderBatch, *, by: Actor, reason: str) -> bool:
    """Cancel one batch, and pause its run, which would only make another of the same trials. Whether it was in time."""
    runs = Run.objects.filter(pk=batch.run_id)
    with transaction.atomic():
        lock_rows(set(_places(runs)))
        if not ProviderBatch.objects.filter(pk=batch.pk).request_cancel(by=by, reason=reason):
            return False
        runs.transition(
            sources=[Run.Status.RUNNING], target=Run.Status.PAUSED, by=by, reason=reason, stop_reason=reason
        )
    wake()
    return True


RETRY = """
UPDATE runs_app_trial SET status = 'pending', attempts = 0, yields = 0, not_before = NULL, completed_at = NULL
WHERE run_id = %s AND status = 'failed' AND (%s::text IS NULL OR error_class = %s)
"""


def retry_failed(runs: RunQuerySet, *, by: Actor, error_class: str | None = None, reason: str = "") -> int:
    """Give failed trials, of one error class or all, a new set of attempts; returns how many. Their rows stay.

    Not those of a cancelled run: nothing would ever claim them.
    """
    total = 0
    for place in _places(runs):
        with transaction.atomic():
            if lock_rows({place})[place.run_id] == Run.Status.CANCELLED:
                continue
            n = _move_trials(place, RETRY, [place.run_id, error_class, error_class], before="failed", after="pending")
            if n:
                reopen_points(place.run_id)
                start_runs(
                    Run.objects.filter(pk=place.run_id),
                    sources=[Run.Status.DONE, Run.Status.STOPPED],
                    by=by,
                    reason=reason or f"retry of {n} failed ({error_class or 'all classes'})",
                )
            total += n
    wake()
    return total


REVIVE = """
UPDATE runs_app_trial SET status = 'pending', attempts = 0, yields = 0, not_before = NULL, completed_at = NULL
WHERE run_id = %s AND status = 'cancelled'
"""


def revive(runs: RunQuerySet, *, by: Actor, reason: str) -> dict[int, int]:
    """Of those that were cancelled, what never started waits again; how many trials, by run.

    A run of which nothing waits is done, so that more can be asked of it. For judges: their runs can come again, since
    what they are asked about is there already.
    """
    revived = {}
    with transaction.atomic():
        places = _places(runs.filter(status=Run.Status.CANCELLED))
        lock_rows(set(places))
        for place in places:
            n = _move_trials(place, REVIVE, [place.run_id], before="cancelled", after="pending")
            run = Run.objects.filter(pk=place.run_id)
            if start_runs(run.exclude(n_pending=0, n_running=0), sources=[Run.Status.CANCELLED], by=by, reason=reason):
                revived[place.run_id] = n
            else:
                run.transition(
                    sources=[Run.Status.CANCELLED], target=Run.Status.DONE, by=by, reason=reason, stop_reason=""
                )
    return revived


def set_concurrency(run: Run, n: int, *, by: Actor) -> None:
    """Set how many calls of this run may be in flight, from the next claim on. ValueError outside the bound."""
    BOUNDS["run"]["max_concurrency"].check(n)
    with transaction.atomic():
        row = Run.objects.select_for_update().get(pk=run.pk)
        record_changes([(row, str(row.max_concurrency), str(n))], by=by, reason="", what="max_concurrency")
        Run.objects.filter(pk=run.pk).update(max_concurrency=n)
    run.max_concurrency = n


def _places(runs: RunQuerySet) -> list[CounterKeys]:
    rows = runs.order_by("pk").values_list("pk", "experiment_id", "condition__model__endpoint_id")
    return [CounterKeys(*row) for row in rows]


def _move_trials(place: CounterKeys, sql: str, arguments: list[Any], *, before: str, after: str) -> int:
    """Move trials that are not in flight, and their counters. The run is locked."""
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        n = int(cursor.rowcount)
    deltas = CounterDeltas()
    delta = deltas.at(place)
    setattr(delta, before, -n)
    setattr(delta, after, n)
    deltas.settle()
    return n
