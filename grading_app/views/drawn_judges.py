"""Judges with randomly drawn models: first the draw and its cost, then the verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from evalsite.lib.permissions import members_only
from grading_app.forms.drawn_judges import DrawnJudgesForm
from grading_app.judging.judge_draw import pin_judges
from grading_app.judging.judge_plan import request_verdicts
from grading_app.judging.judging_costs import estimate_judging
from grading_app.models import Grader
from grading_app.views.grading import describe_reports
from runs_app.planning.work import PlanError
from runs_app.pricing.estimated_costs import CostEstimate
from runs_app.views.permissions import get_editable_experiment


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
def experiment_draw_judges(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the form (GET). Draw judges and show their cost, or request their verdicts once confirmed (POST)."""
    experiment = get_editable_experiment(request, slug)
    form = DrawnJudgesForm(request.POST or None, experiment=experiment, user=request.user)
    if "draw" in request.POST:
        form.redraw()
    graders = form.draw_graders()
    waves = list(experiment.waves.all())
    estimate = estimate_judging(experiment, graders, waves, force=False) if graders else None
    if estimate is not None and "ask" in request.POST and _request_verdicts(request, form, graders, estimate):
        return redirect("experiment_grading", slug)
    context = {"experiment": experiment, "form": form, "draw_lines": form.lines, "estimate": estimate}
    if estimate is not None:
        context["needs_confirmation"] = experiment.needs_confirmation(estimate.ceiling_usd)
        context["is_over_budget"] = experiment.may_exceed_budget(estimate.ceiling_usd)
    return render(request, "grading_app/draw_judges.html", context)


def _request_verdicts(
    request: HttpRequest, form: DrawnJudgesForm, graders: Sequence[Grader], estimate: CostEstimate
) -> bool:
    if form.experiment.needs_confirmation(estimate.ceiling_usd) and not form.cleaned_data["confirmed"]:
        form.add_error("confirmed", "Confirm the maximum cost.")
        return False
    draw, name = form.draw, form.cleaned_data["name"]
    if draw is None or estimate.problems:
        form.add_error(None, estimate.problems)
        return False
    try:
        judges = pin_judges(form.experiment, draw, graders, name=name, by=request.user)
        waves = list(form.experiment.waves.all())
        report = request_verdicts(form.experiment, judges, waves, by=request.user, approved=estimate, revive=True)
    except PlanError as error:
        form.add_error(None, error.problems)
        return False
    messages.success(request, describe_reports(report))
    return True
