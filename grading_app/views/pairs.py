"""A pair of answers on which raters differ."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from grading_app.comparison import disagreements
from grading_app.comparison.answer_pairs import answers_of, pair_with, sides_of_pair
from grading_app.comparison.query import QuestionForm
from grading_app.comparison.raters import PAIRS
from grading_app.views.disagreements import choice_of, order_of, stored_order
from runs_app.prompt_preview import rebuild_turns
from runs_app.views.permissions import visible_experiment


@require_safe
@readers_only
def pair_disagreement(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Show one pair: the question, both answers, and each rater's choice and reasons side by side."""
    experiment = visible_experiment(request, slug)
    wanted = request.GET.copy()
    wanted["units"] = PAIRS
    question, unit = QuestionForm(wanted, experiment).question(), pair_with(experiment, pk)
    pair = answers_of(question, [unit]).get(unit) if question is not None and unit is not None else None
    if question is None or unit is None or pair is None:
        raise Http404
    cached = stored_order(question)
    context = {
        "experiment": experiment,
        "trial": pair[0],  # The template for one answer shows this trial's item.
        "first": pair[0],
        "second": pair[1],
        "place": disagreements.place_of(question, unit, order_of(request), cached.row if cached else None),
        "turns": rebuild_turns(pair[0]),
        "sides": sides_of_pair(question, unit, pair),
        "query": choice_of(request, units=PAIRS).urlencode(),
    }
    return render(request, "grading_app/pair_disagreement.html", context)
