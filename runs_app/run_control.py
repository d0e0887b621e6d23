"""Launch, pause, resume, cancel and retry of runs. Workers observe a change at their next claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from evalsite.lib.history import Actor
from evalsite.lib.text.number_format import format_count
from runs_app.engine.adaptive_rounds import reopen_points
from runs_app.engine.counters import CounterDeltas, CounterKeys, lock_counter_rows
from runs_app.engine.run_lifecycle import start_next_queued, start_runs
from runs_app.models import Experiment, ProviderBatch, Run, Trial
from runs_app.models.runs import RunQuerySet
from runs_app.planning.extension import (
    DEFAULT_REASON,
    Extension,
    add_rows,
    build_extended_design,
    find_extension_problems,
)
from runs_app.planning.manifests import write_manifest
from runs_app.planning.plan import PlanReport, plan
from runs_app.planning.work import PlanError
from runs_app.pricing.costs import CostEstimate
from runs_app.taskqueue.enqueue import enqueue_drains

NEW_ATTEMPTS: dict[str, Any] = {"attempts": 0, "yields": 0, "not_before": None, "completed_at": None}


class LaunchError(Exception):
    """A launch that was refused; the message gives the reason."""


def launch(
    experiment: Experiment,
    *,
    by: Actor,
    wave: str = "",
    pilot: int | None = None,
    approved: CostEstimate | None = None,
    reason: str = "",
    only: Collection[str] | None = None,
    policy: str | None = None,
    launched_rows: Collection[Any] = (),
) -> PlanReport:
    """Plan the missing trials, or `pilot` of them, write the manifest, and start the runs.

    `only`, `policy` and `launched_rows` are those of `plan`. `approved` is the estimate that the user saw; the manifest
    records it. Launches of one experiment are serialized by a row lock. A launch that adds no trial and starts no run
    changes nothing and writes no manifest.

    Raise PlanError or LaunchError if the launch is impossible.
    """
    reason = reason or ("launched" if pilot is None else f"launched, a pilot of {pilot}")
    with transaction.atomic():
        locked = Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
        if locked.is_archived:
            raise LaunchError(f"{experiment} is archived")
        report = plan(
            experiment, wave_label=wave, by=by, pilot=pilot, only=only, policy=policy, launched_rows=launched_rows
        )
        activated = Experiment.objects.filter(pk=experiment.pk).transition(
            sources=[Experiment.Status.DRAFT], target=Experiment.Status.ACTIVE, by=by, reason=reason
        )
        runs = experiment.answer_runs.filter(wave__label=wave, n_pending__gt=0)
        runs = runs if only is None else runs.filter(pk__in=report.run_ids)
        started = start_runs(runs, sources=[Run.Status.PLANNED, Run.Status.DONE], by=by, reason=reason)
        is_new = bool(activated or started or report.trials_added)
        if is_new:
            write_manifest(experiment, by=by, wave=wave, pilot=pilot, approved=approved, only=only, policy=policy)
    experiment.refresh_from_db()
    enqueue_drains()
    return replace(report, is_new=is_new, notes=list(_describe_unchanged(report.run_ids)))


def _describe_unchanged(run_ids: Collection[int]) -> Iterator[str]:
    """Yield a note on the runs that a launch does not start, and on how to continue them."""
    states = Counter(Run.objects.filter(pk__in=run_ids).values_list("status", flat=True))
    if n := states[Run.Status.CANCELLED]:
        yield (
            f"{_count_runs_text(n)} cancelled and {'stays' if n == 1 else 'stay'} so, without new trials. "
            "To ask again, launch under a new wave label."
        )
    if n := states[Run.Status.PAUSED] + states[Run.Status.STOPPED]:
        yield f"{_count_runs_text(n)} paused or stopped. Resume {'it' if n == 1 else 'them'} to go on."


def _count_runs_text(n: int) -> str:
    return "1 run is" if n == 1 else f"{n:,} runs are"


def extend(
    experiment: Experiment,
    extension: Extension,
    *,
    by: Actor,
    reason: str = "",
    wave: str = "",
    approved: CostEstimate | None = None,
) -> PlanReport:
    """Add rows to a launched design, plan the missing trials of this wave, and start them.

    Existing trials do not change. Models of the design that are inactive now get no new trials. `approved` is the
    estimate that the user saw; the manifest records it.

    Raise PlanError or LaunchError, and change nothing, if the extension is impossible.
    """
    with transaction.atomic():
        locked = Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
        if problems := list(find_extension_problems(locked, extension, wave)):
            raise PlanError(problems)
        design = build_extended_design(locked, extension)
        add_rows(locked, extension, by=by, reason=reason)
        report = launch(
            locked,
            by=by,
            wave=wave,
            approved=approved,
            reason=reason or DEFAULT_REASON,
            only=design.only,
            launched_rows=design.launched_rows,
        )
    experiment.refresh_from_db()
    return report


def pause(runs: RunQuerySet, *, by: Actor, reason: str = "") -> list[int]:
    """Pause these runs and return the ids that changed. Calls in flight are still answered and recorded."""
    with transaction.atomic():
        lock_counter_rows(set(_list_counter_keys(runs)))
        return runs.transition(
            sources=[Run.Status.RUNNING, Run.Status.QUEUED],
            target=Run.Status.PAUSED,
            by=by,
            reason=reason,
            stop_reason=reason,
        )


def resume(runs: RunQuerySet, *, by: Actor, reason: str = "") -> list[int]:
    """Resume these runs and return the ids that changed. Runs of a sequential design resume in their order.

    Failures before the resume no longer count towards the stopping rule. Runs of imported answers are
    excluded, because this site never makes their calls.
    """
    runs = runs.callable_here()
    with transaction.atomic():
        lock_counter_rows(set(_list_counter_keys(runs)))
        moved = start_runs(runs, sources=[Run.Status.PAUSED, Run.Status.STOPPED], by=by, reason=reason)
    enqueue_drains()
    return moved


def cancel(runs: RunQuerySet, *, by: Actor, reason: str = "") -> list[int]:
    """Cancel these runs and return the ids that changed. Pending trials never start.

    Calls in flight are still recorded, because they cost money. Open batches are cancelled at their provider; the
    answers that they have by then are recorded too. Runs of imported answers are excluded and keep their status.
    """
    live = [Run.Status.PLANNED, Run.Status.QUEUED, Run.Status.RUNNING, Run.Status.PAUSED, Run.Status.STOPPED]
    moved = []
    # Start with the last run of a sequence, so that no later run starts.
    for counter_keys in reversed(_list_counter_keys(runs.callable_here())):
        with transaction.atomic():
            lock_counter_rows({counter_keys})
            run = Run.objects.filter(pk=counter_keys.run_id)
            if run.transition(
                sources=live,
                target=Run.Status.CANCELLED,
                by=by,
                reason=reason,
                stop_reason=reason,
                finished_at=Now(),
            ):
                _move_trials(counter_keys, "pending", "cancelled", not_before=None, completed_at=Now())
                ProviderBatch.objects.filter(run=counter_keys.run_id).request_cancel(by=by, reason=reason)
                start_next_queued([counter_keys.experiment_id])
                moved.append(counter_keys.run_id)
    return moved


def cancel_batch(batch: ProviderBatch, *, by: Actor, reason: str) -> bool:
    """Cancel one batch and pause its run, which would otherwise batch the same trials again.

    Return False if the batch could no longer be cancelled.
    """
    runs = Run.objects.filter(pk=batch.run_id)
    with transaction.atomic():
        lock_counter_rows(set(_list_counter_keys(runs)))
        if not ProviderBatch.objects.filter(pk=batch.pk).request_cancel(by=by, reason=reason):
            return False
        runs.transition(
            sources=[Run.Status.RUNNING], target=Run.Status.PAUSED, by=by, reason=reason, stop_reason=reason
        )
    enqueue_drains()
    return True


def retry_failed(runs: RunQuerySet, *, by: Actor, error_class: str | None = None, reason: str = "") -> int:
    """Give failed trials, of one error class or all, a new set of attempts. Return the number of trials.

    Their attempt rows stay. Trials of cancelled runs are excluded, because no worker would claim them. So are
    imported answers, because this site never makes their calls.
    """
    total = 0
    for counter_keys in _list_counter_keys(runs.callable_here()):
        with transaction.atomic():
            if lock_counter_rows({counter_keys})[counter_keys.run_id] == Run.Status.CANCELLED:
                continue
            trials = Trial.objects.filter(error_class=error_class) if error_class is not None else Trial.objects.all()
            n = _move_trials(counter_keys, "failed", "pending", trials, **NEW_ATTEMPTS)
            if n:
                reopen_points(counter_keys.run_id)
                start_runs(
                    Run.objects.filter(pk=counter_keys.run_id),
                    sources=[Run.Status.DONE, Run.Status.STOPPED],
                    by=by,
                    reason=reason or f"retry of failed trials ({error_class or 'all classes'})",
                )
            total += n
    enqueue_drains()
    return total


def describe_retry(runs: RunQuerySet, n: int) -> str:
    """Return what a retry of `n` trials does, without a period.

    While a preregistered plan runs, the number would tell how the calls of one run ended, so it is left out.
    """
    concerned = list(runs.select_related("experiment")[:2])
    if len(concerned) == 1 and concerned[0].experiment.runs_a_plan:
        return "Failed trials will be retried"
    return f"{format_count(n)} failed {'trial' if n == 1 else 'trials'} will be retried"


def revive(runs: RunQuerySet, *, by: Actor, reason: str) -> dict[int, int]:
    """Make the cancelled trials of cancelled runs pending again. Return the number of trials by run id.

    A run without such trials becomes done, so that it can get more trials. Only runs of judges are revived: the answers
    that they judge are stored already.
    """
    revived = {}
    with transaction.atomic():
        all_keys = _list_counter_keys(runs.filter(status=Run.Status.CANCELLED))
        lock_counter_rows(set(all_keys))
        for counter_keys in all_keys:
            n = _move_trials(counter_keys, "cancelled", "pending", **NEW_ATTEMPTS)
            run = Run.objects.filter(pk=counter_keys.run_id)
            if start_runs(run.exclude(n_pending=0, n_running=0), sources=[Run.Status.CANCELLED], by=by, reason=reason):
                revived[counter_keys.run_id] = n
            else:
                run.transition(
                    sources=[Run.Status.CANCELLED], target=Run.Status.DONE, by=by, reason=reason, stop_reason=""
                )
    return revived


def _list_counter_keys(runs: RunQuerySet) -> list[CounterKeys]:
    rows = runs.order_by("pk").values_list("pk", "experiment_id", "condition__model__endpoint_id")
    return [CounterKeys(*row) for row in rows]


def _move_trials(
    counter_keys: CounterKeys, before: str, after: str, trials: QuerySet[Trial] | None = None, **columns: Any
) -> int:
    """Move the run's trials that are not in flight to another status, and update the counters. The run must be locked.

    trials: those to choose from; None: all. columns: what else is written.
    """
    chosen = Trial.objects.all() if trials is None else trials
    n = chosen.filter(run=counter_keys.run_id, status=before).update(status=after, **columns)
    deltas = CounterDeltas()
    delta = deltas.for_run(counter_keys)
    setattr(delta, before, -n)
    setattr(delta, after, n)
    deltas.write_changes()
    return n
