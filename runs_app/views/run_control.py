"""The actions on runs. Each is one POST, for an experiment or one run, and its reason is in the history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from datasets_app.views.permissions import redirect_back
from evalsite.lib.history import TransitionError
from evalsite.lib.permissions import members_only
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.form_fields import get_first_error
from evalsite.lib.web.model_names import hides_model_names
from runs_app import deletion, run_control
from runs_app.forms.run_control import ConcurrencyForm, LaunchForm, LaunchScopeForm, PriorityForm, RunControlForm
from runs_app.models import Run
from runs_app.models.preflights import prefetch_last_preflights
from runs_app.models.runs import RunQuerySet
from runs_app.planning.cost_estimate import summarise_experiment
from runs_app.planning.plan import PILOT_TRIALS
from runs_app.planning.work import PlanError
from runs_app.taskqueue.enqueue import enqueue_preflights
from runs_app.views.permissions import get_editable_experiment, get_editable_run, get_posted_data


@dataclass(frozen=True)
class Action:
    """A button, with its verb in the URL and the run statuses in which it has an effect."""

    verb: str
    label: str
    icon: str
    text: str
    sources: frozenset[str]
    tone: str = ""
    reason: str = "optional"
    name: str = ""
    value: str = ""


S = Run.Status
PAUSE = Action(
    "pause",
    "Pause",
    "pause-fill",
    "No new calls start. Calls in flight finish and are kept.",
    frozenset({S.RUNNING, S.QUEUED}),
)
RESUME = Action("resume", "Resume", "play-fill", "Calls continue where they stopped.", frozenset({S.PAUSED, S.STOPPED}))
CANCEL = Action(
    "cancel",
    "Cancel",
    "slash-circle",
    "Pending trials never start. Calls in flight finish and are kept. "
    "A cancelled run cannot be resumed. A cancelled judge can be requested again.",
    frozenset({S.PLANNED, S.QUEUED, S.RUNNING, S.PAUSED, S.STOPPED}),
    tone="danger",
    reason="required",
)


def list_actions(runs: Iterable[Run], *, hides_outcomes: bool = False) -> list[Action]:
    """Return the actions that would change these runs in their current state. Imported answers have none.

    hides_outcomes: do not tell how many trials have failed.
    """
    runs = [run for run in runs if run.is_callable_here]
    statuses = {run.status for run in runs}
    actions = [action for action in (PAUSE, RESUME, CANCEL) if action.sources & statuses]
    if failed := sum(run.n_failed for run in runs if run.status != S.CANCELLED):
        counted = "1 failed trial gets" if failed == 1 else f"{format_count(failed)} failed trials get"
        text = f"{'Failed trials get' if hides_outcomes else counted} a new set of attempts. Earlier costs remain."
        actions.insert(-1, Action("retry", "Retry failed trials", "arrow-repeat", text, frozenset()))
    return actions


def build_deletion_action(run: Run, *, hides_outcomes: bool = False) -> list[Action]:
    """Return the action that deletes this run, or an empty list while the run is live."""
    if run.is_live:
        return []
    text = "This permanently deletes its trials." if hides_outcomes else run.describe_deletion()
    return [Action("delete", "Delete run", "trash", text, frozenset(), tone="danger", reason="required")]


CHANGES = {
    "pause": (run_control.pause, "paused"),
    "resume": (run_control.resume, "resumed"),
    "cancel": (run_control.cancel, "cancelled"),
}


@require_POST
@members_only
@hides_model_names()
def experiment_action(request: HttpRequest, slug: str, verb: str) -> HttpResponse:
    experiment = get_editable_experiment(request, slug)
    if verb != "priority":
        _apply_verb(request, experiment.runs.all(), verb)
    elif not (form := PriorityForm(request.POST)).is_valid():
        messages.error(request, get_first_error(form))
    else:
        n = form.cleaned_data["priority"]
        if experiment.change_priority(n, by=request.user, reason=form.cleaned_data["reason"]):
            messages.success(request, f"Priority {n} from the next claim on.")
        else:
            messages.warning(request, f"Nothing changed: the priority is already {n}.")
    return redirect_back(request, reverse("experiment_progress", args=[experiment.slug]))


@require_POST
@members_only
@hides_model_names()
def run_action(request: HttpRequest, pk: int, verb: str) -> HttpResponse:
    run = get_editable_run(request, pk)
    if verb == "delete":
        form = RunControlForm(request.POST, reason_required=True)
        if not form.is_valid():
            messages.error(request, get_first_error(form))
            return redirect(run)
        name = str(run)
        try:
            deletion.delete_run(run, by=request.user, reason=form.cleaned_data["reason"])
        except TransitionError as problem:
            messages.error(request, str(problem))
            return redirect(run)
        messages.success(request, f"{name} is deleted. Its cost stays part of the spent budget.")
        return redirect("experiment_progress", run.experiment.slug)
    if verb != "concurrency":
        _apply_verb(request, Run.objects.filter(pk=run.pk), verb)
    elif (limit_form := ConcurrencyForm(request.POST)).is_valid():
        n = limit_form.cleaned_data["max_concurrency"]
        run.change_concurrency(n, by=request.user)
        messages.success(request, f"The limit is {n} calls in flight from the next claim on.")
    else:
        messages.error(request, get_first_error(limit_form))
    return redirect_back(request, run)


def _apply_verb(request: HttpRequest, runs: RunQuerySet, verb: str) -> None:
    if verb not in (*CHANGES, "retry"):
        raise Http404
    form = RunControlForm(request.POST, reason_required=verb == "cancel")
    if not form.is_valid():
        messages.error(request, get_first_error(form))
        return
    by: Any = request.user
    reason = form.cleaned_data["reason"]
    if verb == "retry":
        error_class = form.cleaned_data["only"] or None
        if n := run_control.retry_failed(runs, error_class=error_class, by=by, reason=reason):
            messages.success(request, f"{run_control.describe_retry(runs, n)}.")
            return
        kind = f" of class {error_class}" if error_class else ""
        text = f"Nothing changed: there are no failed trials{kind}. Trials of cancelled runs are not retried."
        messages.warning(request, text)
        return
    change, outcome = CHANGES[verb]
    if keys := change(runs, by=by, reason=reason):
        messages.success(request, f"{len(keys)} {'run' if len(keys) == 1 else 'runs'} {outcome}.")
    else:
        messages.warning(request, "Nothing changed: no run has a status that allows this.")


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
def experiment_launch(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the effect and cost of a launch on GET, and launch on POST. The URL names the wave or the pilot."""
    experiment = get_editable_experiment(request, slug)
    scope = LaunchScopeForm(request.POST if request.method == "POST" else request.GET).chosen
    wave, pilot, policy = scope["wave"], scope["pilot"], scope["policy"] or None
    summary = summarise_experiment(experiment, wave_label=wave, pilot=pilot, policy=policy)
    form = LaunchForm(get_posted_data(request)[0], initial=scope, needs_confirmation=summary.needs_confirmation)
    if request.method == "POST" and form.is_valid():
        try:
            report = run_control.launch(
                experiment, by=request.user, wave=wave, pilot=pilot, approved=summary.estimate, policy=policy
            )
        except (PlanError, run_control.LaunchError) as problem:
            form.add_error(None, getattr(problem, "problems", None) or str(problem))
        else:
            if report.is_new:
                messages.success(request, f"Launched: {report.summary}.")
            else:
                messages.info(request, f"Already launched, nothing has changed: {report.summary}.")
            for note in report.notes:
                messages.warning(request, note)
            return redirect("experiment_progress", experiment.slug)
    context = {
        "experiment": experiment,
        "form": form,
        "summary": summary,
        "spent": experiment.read_totals().find_known_cost(experiment.spent_usd),
        "pilot": pilot,
        "pilot_size": PILOT_TRIALS,
        "models": list(prefetch_last_preflights(experiment.language_models.select_related("endpoint"))),
    }
    return render(request, "runs_app/experiment_launch.html", context)


@require_POST
@members_only
def experiment_preflight(request: HttpRequest, slug: str) -> HttpResponse:
    """Have workers make one small call to each model. The launch page shows the results."""
    experiment = get_editable_experiment(request, slug)
    keys = list(experiment.language_models.values_list("pk", flat=True))
    enqueue_preflights(keys, by=request.user, experiment=experiment)
    messages.success(request, f"{len(keys)} test {'call was' if len(keys) == 1 else 'calls were'} sent.")
    return redirect_back(request, reverse("experiment_launch", args=[experiment.slug]))
