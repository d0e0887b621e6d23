"""The comparison of two waves of an experiment, to detect drift of a model."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from grading_app.results.wave_tables import make_outcome_table, make_score_tables
from grading_app.results.waves import WaveComparison, get_wave_comparison
from grading_app.statistics.intervals import describe_change_coverage
from grading_app.statistics.paired import MAX_EXACT_ITEMS, MIN_CHANGED
from grading_app.views.result_tables import get_table_context, make_requested_file
from runs_app.models import Experiment, Wave
from runs_app.views.permissions import get_visible_experiment


@require_safe
@readers_only
def experiment_waves(request: HttpRequest, slug: str) -> HttpResponse:
    """Compare two waves. `a` and `b` are labels or numbers, by default of the first and the last wave.

    `table` and `format` ask for one of the tables as a file.
    """
    experiment = get_visible_experiment(request, slug)
    waves = list(experiment.waves.all())
    context: dict[str, Any] = {"experiment": experiment, "state": experiment.state, "waves": waves}
    if len(waves) > 1:
        a, b = (_choose_wave(waves, request.GET.get(side, ""), index) for side, index in (("a", 0), ("b", -1)))
        # The address of a wave keeps the other choice.
        choices = [
            {
                "title": title,
                "choices": [
                    {
                        "label": str(wave),
                        "is_chosen": wave == chosen,
                        "query": {side: wave.url_name, other_side: other.url_name},
                    }
                    for wave in waves
                ],
            }
            for title, side, chosen, other_side, other in (("From", "a", a, "b", b), ("To", "b", b, "a", a))
        ]
        context |= {"a": a, "b": b, "sides": choices}
        if a != b:
            pair = get_wave_comparison(experiment, a, b)
            scores = make_score_tables(pair.lines, a, b)
            outcomes = make_outcome_table(pair.outcomes, a, b) if pair.outcomes else None
            basename = f"{experiment.slug}-{a.url_name}-{b.url_name}"
            if response := make_requested_file(request, [*scores, *([outcomes] if outcomes else [])], basename):
                return response
            context |= _describe_comparison(experiment, pair)
            context["scores"] = [get_table_context(table) for table in scores]
            context["outcomes"] = get_table_context(outcomes) if outcomes else None
    return render(request, "grading_app/experiment_waves.html", context)


def _choose_wave(waves: list[Wave], name: str, default_index: int) -> Wave:
    if not name:
        return waves[default_index]
    matches = [wave for wave in waves if name == wave.url_name] or [w for w in waves if name == str(w.number)]
    if not matches:
        raise Http404
    return matches[0]


def _describe_comparison(experiment: Experiment, pair: WaveComparison) -> dict[str, Any]:
    """Return the sentences around the tables."""
    coverage_notes = [
        describe_change_coverage(
            (line.change for line in pair.lines if line.change and line.measure.is_share == is_share), is_share=is_share
        )
        for is_share in (True, False)
    ]
    # Ratings of answers on dimensions are not scores.
    on_dimensions = experiment.rating_queues.filter(rubric=None, assignments__ratings__value__isnull=False)
    return {
        "pair": pair,
        "has_several_conditions": len({line.condition for line in pair.lines}) > 1,
        "coverage_notes": [note for note in coverage_notes if note],
        "few": MAX_EXACT_ITEMS,
        "few_changed": MIN_CHANGED,
        "left_out_queues": list(on_dimensions.order_by("name").values_list("name", flat=True).distinct()),
        "tested": [line for line in pair.lines if line.adjusted is not None],
    }
