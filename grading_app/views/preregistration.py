"""The preregistration of an experiment: its form before the launch, then the frozen plan, and the plan as a file."""

from __future__ import annotations

from django.contrib import messages
from django.db import DatabaseError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from evalsite.lib.permissions import readers_only
from evalsite.lib.text.hashing import hash_content
from grading_app.forms.preregistration import PreregistrationForm
from runs_app.models import Experiment, Preregistration
from runs_app.planning.spec_io import build_spec
from runs_app.views.permissions import get_editable_experiment, get_posted_data, get_visible_experiment, may_edit

TOO_LATE = "The plan was not frozen: the experiment was launched meanwhile, or has a plan."


@require_http_methods(["GET", "HEAD", "POST"])
@readers_only
def experiment_preregistration(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the frozen plan, or the form that freezes one before the launch."""
    experiment = (
        get_editable_experiment(request, slug) if request.method == "POST" else get_visible_experiment(request, slug)
    )
    plan = find_plan(experiment)
    may_freeze = plan is None and experiment.status == Experiment.Status.DRAFT and may_edit(request, experiment)
    form = PreregistrationForm(get_posted_data(request)[0], experiment) if may_freeze else None
    if form is not None and form.is_valid():
        content = {**form.cleaned_data, "design": hash_content(build_spec(experiment))}
        try:
            with transaction.atomic():
                Preregistration.freeze(experiment, content, by=request.user)
            messages.success(request, "The plan is frozen. It never changes, and reports compare the results with it.")
        except DatabaseError:
            messages.error(request, TOO_LATE)
        return redirect("experiment_preregistration", slug)
    context = {"experiment": experiment, "state": experiment.state, "plan": plan, "form": form}
    return render(request, "grading_app/preregistration.html", context)


@require_safe
@readers_only
def preregistration_text(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the frozen plan as Markdown, for an archive of preregistrations."""
    plan = find_plan(get_visible_experiment(request, slug))
    if plan is None:
        raise Http404
    response = HttpResponse(plan.to_markdown(), content_type="text/markdown; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{slug}-preregistration.md"'
    return response


def find_plan(experiment: Experiment) -> Preregistration | None:
    plan: Preregistration | None = (
        Preregistration.objects.select_related("experiment").filter(experiment=experiment).first()
    )
    return plan
