"""A pair of answers on which raters differ."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from grading_app.raters import disagreements
from grading_app.raters.answer_pairs import find_pair, list_pair_verdicts, load_answer_pairs
from grading_app.raters.raters import PAIRS
from grading_app.raters.rating_selection import RatingSelectionForm
from grading_app.views.disagreements import get_rater_choice, get_spread_measure, get_stored_disagreements
from runs_app.condition_labels import load_labels
from runs_app.prompt_preview import rebuild_turns
from runs_app.views.permissions import get_visible_experiment


@require_safe
@readers_only
def pair_disagreement(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Show one pair: the question, both answers, and each rater's choice and reasons side by side."""
    experiment = get_visible_experiment(request, slug)
    parameters = request.GET.copy()
    parameters["units"] = PAIRS
    selection, unit = RatingSelectionForm(parameters, experiment).get_selection(), find_pair(experiment, pk)
    pair = load_answer_pairs(selection, [unit]).get(unit) if selection is not None and unit is not None else None
    if selection is None or unit is None or pair is None:
        raise Http404
    cached = get_stored_disagreements(selection)
    labels, names_wave = load_labels([experiment.pk]), experiment.has_several_waves()
    context = {
        "experiment": experiment,
        "trial": pair[0],  # The template for one answer shows this trial's item.
        "first": pair[0],
        "second": pair[1],
        "first_label": pair[0].run.get_label(labels, names_wave=names_wave),
        "second_label": pair[1].run.get_label(labels, names_wave=names_wave),
        "position": disagreements.find_position(
            selection, unit, get_spread_measure(request), cached.row if cached else None
        ),
        "turns": rebuild_turns(pair[0]),
        "verdicts": list_pair_verdicts(selection, unit, pair),
        "query": get_rater_choice(request, units=PAIRS).urlencode(),
    }
    return render(request, "grading_app/pair_disagreement.html", context)
