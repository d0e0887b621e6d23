"""Tests of a rubric on five stored answers: their form, their cost, and their verdicts."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from evalsite.lib.permissions import members_only
from evalsite.lib.text.number_format import format_money
from evalsite.lib.web.choice_fields import fetch_choices
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.model_names import hides_model_names
from grading_app.forms.rubrics import RubricTestForm
from grading_app.judging.default_sampler import get_or_create_default_sampler
from grading_app.judging.rubric_preview import PreviewCost, RubricPreview, list_previewed_verdicts, request_preview
from grading_app.models import Rubric
from runs_app.llm import judge_prompt, prompts
from runs_app.models import Experiment
from runs_app.planning.work import PlanError


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
@hides_model_names()
def rubric_test(request: HttpRequest, name: str, version: int) -> HttpResponse:
    """Show the results of tests (GET), or request verdicts on five stored answers (POST)."""
    rubric: Rubric = get_object_or_404(Rubric.objects.visible_to(request.user), name=name, version=version)
    if not request.user.has_perm("grading_app.change_rubric"):
        raise Http404
    with_texts = prompts.uses_variable(rubric.messages or [], judge_prompt.ITEM_RUBRIC)
    data = request.POST if request.method == "POST" else None
    form = RubricTestForm(data, user=request.user, with_texts=with_texts)
    cost = None
    if data is not None and form.is_valid():
        chosen = form.cleaned_data
        sampler = chosen["sampler"] or get_or_create_default_sampler()
        test = RubricPreview(rubric, chosen["experiment"], chosen["model"], sampler, chosen.get("texts"))
        cost = test.estimate_cost()
        if "look" not in data and _request_test(request, test, cost, form):
            return redirect("rubric_test", name, version)
    verdicts = list_previewed_verdicts(rubric, Experiment.objects.visible_to(request.user))
    context: dict[str, Any] = {
        "rubric": rubric,
        "verdicts": verdicts,
        "waits": any(row.verdict is None and not row.trial.error_class for row in verdicts),
    }
    if wants_part(request):
        return render(request, "grading_app/library/verdicts.html", context)
    fetch_choices(form)
    return render(request, "grading_app/library/test.html", context | {"form": form, "cost": cost})


def _request_test(request: HttpRequest, test: RubricPreview, cost: PreviewCost, form: RubricTestForm) -> bool:
    needs_confirmation = test.experiment.needs_confirmation(cost.ceiling_usd) and not any(test.find_problems())
    if needs_confirmation and not form.cleaned_data["confirmed"]:
        limit = format_money(test.experiment.confirm_above_usd)
        message = (
            f"This may cost {format_money(cost.ceiling_usd)}, and "
            f"{test.experiment} asks from {limit} on. Confirm the cost."
        )
        form.add_error("confirmed", message)
        return False
    try:
        request_preview(test, by=request.user)
    except PlanError as error:
        form.add_error(None, [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in error.problems])
        return False
    return True
