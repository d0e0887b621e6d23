"""The length bias of a judge, for one grade condition at a time."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from grading_app.models import GradeCondition
from grading_app.raters.length_bias import LENGTHS, LongerWins, ScoresByLength
from grading_app.raters.length_figure import make_figure
from grading_app.raters.verdict_aggregates import get_aggregates_by_condition
from grading_app.results.cached_aggregates import Cached
from grading_app.views.svg_figures import make_figure_context
from runs_app.condition_labels import make_condition_labels
from runs_app.models import Experiment
from runs_app.views.permissions import get_visible_experiment


@require_safe
@readers_only
def grading_length(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    conditions = _list_conditions(experiment)
    condition = _get_chosen_condition(request, conditions)
    context: dict[str, Any] = {
        "experiment": experiment,
        "state": experiment.state,
        "choices": [(row.pk, row.label) for row in conditions],
        "chosen": condition,
        "is_unknown": condition is None and bool(conditions),
    }
    if condition is not None:
        cached = _get_length_bias(condition, conditions)
        context |= {"cached": cached, "here": request.get_full_path(), "label": condition.label}
        context |= _make_context(experiment, condition, cached.value) if cached.value else {}
    return render(request, "grading_app/grading_length.html", context)


def _list_conditions(experiment: Experiment) -> list[GradeCondition]:
    conditions = experiment.grade_conditions.select_related("grader", "rubric", "panel", "judge_condition")
    return list(conditions.prefetch_related("panel__graders__rubric").order_by("pk"))


def _get_chosen_condition(request: HttpRequest, conditions: list[GradeCondition]) -> GradeCondition | None:
    """Return the condition in the address, by default the first, or None if it does not exist."""
    key = request.GET.get("by", "")
    return next((condition for condition in conditions if key in ("", str(condition.pk))), None)


def _get_length_bias(
    condition: GradeCondition, conditions: list[GradeCondition]
) -> Cached[ScoresByLength | LongerWins]:
    return get_aggregates_by_condition(LENGTHS, [condition], conditions)[condition.pk]


def _load_labels(experiment: Experiment) -> dict[int, str]:
    conditions = experiment.answer_conditions.select_related("model", "prompt", "sampler").order_by("pk")
    return make_condition_labels(list(conditions))


def _make_context(
    experiment: Experiment, condition: GradeCondition, result: ScoresByLength | LongerWins
) -> dict[str, Any]:
    if not isinstance(result, ScoresByLength):
        return {"longer": result}
    figure = make_figure("length", condition.label, result, _load_labels(experiment))
    query = {"by": str(condition.pk)}
    return {"lengths": result, "figure": make_figure_context(figure, experiment.slug, query) if figure else None}
