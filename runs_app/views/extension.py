"""The page that extends a launched design: choose rows, see the new trials and their cost, confirm."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from evalsite.lib.permissions import members_only
from evalsite.lib.web.choice_fields import fetch_choices
from runs_app import run_control
from runs_app.forms.extension import ExtensionForm
from runs_app.models import Experiment
from runs_app.planning.extension import ExtensionPreview, preview_extension
from runs_app.planning.work import PlanError
from runs_app.views.permissions import get_editable_experiment, get_posted_data


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
