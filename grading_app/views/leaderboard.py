"""The leaderboard on the results page: its choices, its tables, and its figure of score against cost."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe
from django_tables2 import RequestConfig

from evalsite.lib.permissions import readers_only
from evalsite.lib.web.model_names import hides_model_names
from grading_app.models import BlindReading
from grading_app.reports import cost_figure
from grading_app.reports.cached_aggregates import Cached
from grading_app.reports.frames import load_condition_labels, load_facets
from grading_app.reports.leaderboard import BoardQuery, BoardRow, Leaderboard, get_leaderboard
from grading_app.reports.leaderboard_tables import (
    BEST_NOTE,
    describe_factor_lead,
    describe_lead,
    make_baseline_table,
    make_leaderboard_table,
)
from grading_app.reports.plot_style import NARROW, WIDE, render_svg
from grading_app.reports.result_table import ResultTable
from grading_app.reports.scope import MISSING_WRONG
from grading_app.results.scores import Measure
from grading_app.tables.leaderboard import LeaderboardTable
from grading_app.views.compare import get_compare_url
from grading_app.views.result_tables import get_table_context
from grading_app.views.svg_figures import make_figure_context, read_theme, read_width, svg_policy
from runs_app.models import Experiment, Wave
from runs_app.views.permissions import get_chosen_wave, get_visible_experiment


class BoardForm(forms.Form):
    """The choices of a leaderboard, sent by GET."""

    baseline = forms.TypedChoiceField(label="Baseline", required=False, coerce=int, empty_value=None)
    missing = forms.ChoiceField(
        label="Answers without a score",
        required=False,
        choices=[("", "Excluded"), (MISSING_WRONG, "Counted as wrong")],
    )

    def __init__(self, data: Any, labels: dict[int, str]) -> None:
        super().__init__(data)
        field: Any = self.fields["baseline"]
        field.choices = [("", "None"), *labels.items()]

    def make_query(self, experiment: Experiment, wave: Wave | None) -> BoardQuery | None:
        """Return the query of the chosen leaderboard, or None for invalid choices."""
        if not self.is_valid():
            return None
        counts_as_wrong = self.cleaned_data["missing"] == MISSING_WRONG
        return BoardQuery(experiment, wave, counts_as_wrong, self.cleaned_data["baseline"])


MAX_LEADS = 3
"""The number of measures whose leading conditions the page describes."""


def get_leaderboard_context(
    request: HttpRequest,
    experiment: Experiment,
    wave: Wave | None,
    labels: dict[int, str],
    letters: Mapping[int, str] | None = None,
) -> tuple[dict[str, Any], list[ResultTable]]:
    """Return the context of `grading_app/partials/leaderboard.html`, and its tables for files.

    letters: by model, in place of the names of models.
    """
    form = BoardForm(request.GET, labels)
    query = form.make_query(experiment, wave)
    context: dict[str, Any] = {"board_form": form}
    if query is None:
        return context, []
    cached: Cached[Leaderboard] = get_leaderboard(query)
    board = cached.value
    context["board_cached"] = cached
    board = board.with_labels(labels) if board else None
    if board is None or not board.measures:
        return context, []
    get_address = partial(_get_compare_url, board, experiment, wave, request.GET.get("missing", ""))
    html = LeaderboardTable(board, experiment.slug, get_address)
    RequestConfig(request, paginate=False).configure(html)
    baselines = [table for measure in board.measures if (table := make_baseline_table(board, measure, get_address))]
    context |= {
        "board": board,
        "board_html": html,
        "factor_leads": _describe_factors(board, load_facets(experiment, letters)),
        "board_leads": [text for measure in board.measures[:MAX_LEADS] if (text := describe_lead(board, measure))],
        "board_table": make_leaderboard_table(board),
        "best_note": BEST_NOTE if len(board.rows) > 1 else "",
        "board_baselines": [get_table_context(table) for table in baselines],
        "cost_figures": [
            _make_figure(request, experiment, board, measure)
            for measure in board.measures
            if cost_figure.has_costs(board, measure)
        ],
    }
    return context, [context["board_table"], *baselines]


def _describe_factors(board: Leaderboard, facets: Mapping[int, tuple[str, str, str]]) -> list[str]:
    """Return a sentence for each factor of the design, on the first measure that has them."""
    for measure in board.measures:
        if leads := board.factor_leads.get(measure.key):
            return [describe_factor_lead(lead, measure, facets) for lead in leads]
    return []


def _get_compare_url(
    board: Leaderboard, experiment: Experiment, wave: Wave | None, missing: str, row: BoardRow, measure: Measure
) -> str:
    """Return the address that compares a condition with the baseline, or with the best other condition."""
    other_rows = [candidate for candidate in board.rows if candidate.condition != row.condition]
    if not other_rows:
        return ""
    best = max(
        other_rows, key=lambda candidate: -1e300 if (mean := candidate.scores[measure.key].mean) is None else mean
    )
    reference = next((candidate for candidate in other_rows if candidate.condition == board.baseline), best)
    a, b = (
        ":".join(map(str, (experiment.slug, candidate.condition, *([wave.number] if wave else []))))
        for candidate in (reference, row)
    )
    return get_compare_url(a, b, measure=measure.key, missing=missing)


def _make_figure(request: HttpRequest, experiment: Experiment, board: Leaderboard, measure: Measure) -> dict[str, Any]:
    choices = {name: request.GET[name] for name in ("wave", "missing") if request.GET.get(name)}
    return make_figure_context(
        f"cost-{measure.key.replace(':', '-')}",
        reverse("cost_figure", args=[experiment.slug]),
        {"measure": measure.key, **choices},
        title=f"{cost_figure.TITLE}: {measure.label}",
        caption="Points with 95 % intervals.",
        alt=cost_figure.write_alt_text(board, measure),
        size=cost_figure.compute_size(WIDE),
        narrow_size=cost_figure.compute_size(NARROW),
    )


@require_safe
@readers_only
@svg_policy
@hides_model_names()
def cost_figure_view(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the figure of a measure against cost as SVG."""
    experiment = get_visible_experiment(request, slug)
    wave = get_chosen_wave(request, experiment)
    theme, width = read_theme(request), read_width(request)
    query = BoardForm({"missing": request.GET.get("missing", "")}, {}).make_query(experiment, wave)
    board = get_leaderboard(query).value if query else None
    blind = BlindReading.objects.hidden_for(request.user).filter(experiment=experiment).first()
    if board is not None and blind is not None:
        board = board.with_labels(load_condition_labels(experiment, wave, blind.assign_letters()))
    measures = [measure for measure in board.measures if measure.key == request.GET.get("measure")] if board else []
    if board is None or not measures or not cost_figure.has_costs(board, measures[0]):
        raise Http404
    svg = render_svg(lambda: cost_figure.draw_cost_figure(board, measures[0], width), theme)
    return HttpResponse(svg, content_type="image/svg+xml")
