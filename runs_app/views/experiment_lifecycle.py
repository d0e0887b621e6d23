"""The pages that extend, duplicate, share, archive and delete an experiment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from evalsite.lib.history import TransitionError
from evalsite.lib.permissions import members_only
from evalsite.lib.web.form_fields import fetch_choices, get_first_error
from evalsite.lib.web.model_names import hides_model_names
from runs_app import deletion, run_control
from runs_app.experiment_files import spec_reader
from runs_app.forms.experiments import DuplicateForm, ExtensionForm, ShareForm
from runs_app.forms.run_control import RunControlForm
from runs_app.models import Experiment
from runs_app.planning import spec_io
from runs_app.planning.extension import ExtensionPreview, preview_extension
from runs_app.planning.work import PlanError
from runs_app.views.permissions import get_editable_experiment, get_posted_data, get_visible_experiment


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
def experiment_duplicate(request: HttpRequest, slug: str) -> HttpResponse:
    """Duplicate a visible design. The copy is a draft that the user owns."""
    experiment = get_visible_experiment(request, slug)
    form = DuplicateForm(get_posted_data(request)[0])
    if request.method == "POST" and form.is_valid():
        try:
            copy = spec_io.duplicate(experiment, form.cleaned_data["slug"], by=cast(User, request.user))
        except spec_reader.SpecError as problem:
            form.add_error("slug", problem.problems)
        else:
            messages.success(request, f"{copy} is a draft of the same design.")
            return redirect(copy)
    return render(request, "runs_app/experiment_duplicate.html", {"form": form, "experiment": experiment})


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
@hides_model_names()
def experiment_share(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_editable_experiment(request, slug)
    form = ShareForm(get_posted_data(request)[0], experiment=experiment)
    if request.method == "POST" and form.is_valid():
        changed = form.save(by=request.user)
        message = f"{experiment} is shared with: {experiment.audience_text}." if changed else "Nothing changed."
        messages.success(request, message)
        return redirect(experiment)
    fetch_choices(form)
    return render(request, "runs_app/experiment_share.html", {"form": form, "experiment": experiment})


@require_POST
@members_only
@hides_model_names()
def experiment_archive(request: HttpRequest, slug: str) -> HttpResponse:
    return change_lifecycle(request, get_editable_experiment(request, slug), Experiment.archive, "archived")


@require_POST
@members_only
@hides_model_names()
def experiment_delete(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_editable_experiment(request, slug, needs_rows=False)
    return change_lifecycle(request, experiment, deletion.delete, "deleted")


def change_lifecycle(
    request: HttpRequest,
    experiment: Experiment,
    change: Callable[..., Any],
    outcome: str,
) -> HttpResponse:
    """Make this change with the reason of the form, show its outcome or problem, and return to a page."""
    form = RunControlForm(request.POST, reason_required=True)
    if not form.is_valid():
        messages.error(request, get_first_error(form))
        return redirect(experiment)
    try:
        change(experiment, by=request.user, reason=form.cleaned_data["reason"])
    except TransitionError as problem:
        messages.error(request, str(problem))
        return redirect(experiment)
    messages.success(request, f"{experiment.slug} is {outcome}.")
    return redirect("experiment_list")


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
def experiment_extend(request: HttpRequest, slug: str) -> HttpResponse:
    """Show what the chosen rows would add. Extend the design after the user has confirmed the preview.

    A draft redirects to its edit page.
    """
    experiment = get_editable_experiment(request, slug)
    if experiment.status == Experiment.Status.DRAFT:
        return redirect("experiment_edit", slug)
    form = ExtensionForm(get_posted_data(request)[0], experiment=experiment, user=request.user)
    preview = None  # Until the choices are valid.
    if form.is_bound and form.is_valid():
        preview = preview_extension(form.experiment, form.extension, wave_label=form.wave_label)
    if preview and "extend" in request.POST and _extend(request, form, preview):
        return redirect("experiment_progress", slug)
    fetch_choices(form)
    form.explain_empty_choices()
    return render(
        request, "runs_app/experiment_extend.html", {"experiment": experiment, "form": form, "preview": preview}
    )


def _extend(request: HttpRequest, form: ExtensionForm, preview: ExtensionPreview) -> bool:
    """Extend the design and return True if the user confirmed this preview. Else the form or the preview has errors."""
    if preview.problems or not form.check_confirmation(preview):
        return False
    try:
        report = run_control.extend(
            form.experiment,
            form.extension,
            by=request.user,
            reason=form.cleaned_data["reason"],
            wave=form.wave_label,
            approved=preview.after,
        )
    except PlanError as problem:
        form.add_error(None, problem.problems)
        return False
    except run_control.LaunchError as problem:
        form.add_error(None, str(problem))
        return False
    messages.success(request, f"Extended: {report.summary}.")
    for note in report.notes:
        messages.warning(request, note)
    return True
