"""The results page of an experiment, and its figures."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from datasets_app.models import Item
from evalsite.lib.permissions import readers_only
from evalsite.lib.web.model_names import hides_model_names
from grading_app.models import BlindReading
from grading_app.results import cost_figure
from grading_app.results.answer_aggregates import fingerprint_results
from grading_app.results.figures import FIGURES
from grading_app.results.frames import Frames, get_frames, load_condition_labels
from grading_app.results.leaderboard import BoardQuery
from grading_app.results.plot_style import render_svg
from grading_app.results.results_page import CostFigure, FigureTexts
from grading_app.results.scope import MISSING_WRONG
from grading_app.results.stored_results import StoredResults, get_figure_svg, get_leaderboard, get_results
from grading_app.results.table import ResultTable
from grading_app.tables.results import AnswerTable
from grading_app.views.blind import get_blind_context
from grading_app.views.result_tables import get_table_context, make_requested_file
from grading_app.views.svg_figures import make_figure_context, read_theme, read_width, svg_policy
from runs_app.models import Experiment, Wave
from runs_app.views.permissions import get_chosen_wave, get_visible_experiment, may_edit

FIRST_FIGURES = {True: ("norms", "ratings"), False: ("scores", "accuracy", "points")}
"""The figure beside the table is the first of these that the experiment has; True: if its first measure is a rating."""
WIDE_TABLE = 5
"""A table with more columns takes the width of the page; its figure stands beside the items."""


class BoardForm(forms.Form):
    """The choices of a leaderboard, sent by GET. An invalid choice has no effect."""

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

    def make_query(self, experiment: Experiment, wave: Wave | None, blind: BlindReading | None) -> BoardQuery:
        self.full_clean()
        counts_as_wrong = self.cleaned_data.get("missing") == MISSING_WRONG
        return BoardQuery(experiment, wave, counts_as_wrong, self.cleaned_data.get("baseline"), blind)


@require_safe
@readers_only
@hides_model_names()
def experiment_results(request: HttpRequest, slug: str) -> HttpResponse:
    return render_results(request, get_visible_experiment(request, slug))


def render_results(request: HttpRequest, experiment: Experiment) -> HttpResponse:
    """Show what the results say, the table of conditions, one figure and the items to read; all else is closed."""
    slug = experiment.slug
    wave = get_chosen_wave(request, experiment)
    blind = get_blind_context(request, experiment)
    reading = blind["blind"]
    labels = load_condition_labels(experiment, wave, reading.assign_letters() if reading else None)
    form = BoardForm(request.GET, labels)
    cached = get_results(form.make_query(experiment, wave, reading))
    results, screen = cached.value, cached.value.screen if cached.value else None
    file = make_requested_file(request, screen.tables, f"{slug}-results") if screen else None
    if file is not None:
        return file
    context = {
        "experiment": experiment,
        "state": experiment.state,
        "waves": list(experiment.waves.all()),
        "wave": wave,
        "board_form": form,
        "results_cached": cached,
        "editable": may_edit(request, experiment),
        "results": results,
        "screen": screen,
        **blind,
    }
    if results is not None:
        has_answers = any(row.done or row.failed for row in results.outcomes)
        outcomes = AnswerTable(results.outcomes, slug=slug, labels=labels, rated=bool(results.dimensions))
        context["answers"] = outcomes if has_answers else None
    if results is not None and screen is not None:
        order = request.GET.get("sort", "")
        of_figure = {"state": _get_figure_state(cached.fingerprint, reading)[:12]}
        of_figure |= {"wave": str(wave.number)} if wave else {}
        figures = {texts.name: make_result_figure(texts, slug, of_figure) for texts in results.figures}
        names = FIRST_FIGURES[results.board.measures[0].is_rating]
        first_name = next((name for name in names if name in figures), "")
        context |= {
            "first": get_table_context(ResultTable.from_content(screen.first), order, is_cards=True),
            "further": [
                get_table_context(ResultTable.from_content(content), order)
                for content in (*screen.baselines, *screen.further, screen.effort)
            ],
            "items": _load_items(results),
            "is_wide": len(screen.first["columns"]) > WIDE_TABLE,
            "figure": figures.pop(first_name, None),
            "figures": [*figures.values(), *([_make_cost_figure(request, screen.cost, slug)] if screen.cost else [])],
        }
    return render(request, "grading_app/experiment_results.html", context)


def _load_items(results: StoredResults) -> list[tuple[Item, list[tuple[str, str]]]]:
    """Return the telling items with pairs of label and text for each cell."""
    telling = results.screen.items if results.screen else None
    if telling is None:
        return []
    items = Item.objects.select_related("image").in_bulk([row.pk for row in telling.items])
    rows = [row for row in telling.items if row.pk in items]
    return [(items[row.pk], list(zip(telling.head, row.cells, strict=True))) for row in rows]


def _make_cost_figure(request: HttpRequest, cost: CostFigure, slug: str) -> dict[str, Any]:
    """Return the figure of score against cost with the choices in the address."""
    choices = {name: request.GET[name] for name in ("wave", "missing") if request.GET.get(name)}
    query = {"measure": cost.measure, **choices}
    return make_result_figure(cost.texts, slug, query, address=reverse("cost_figure", args=[slug]))


def make_result_figure(texts: FigureTexts, slug: str, query: dict[str, str], address: str = "") -> dict[str, Any]:
    """Return a figure of the results for the page, with the table of its numbers."""
    return make_figure_context(
        texts.name,
        address or reverse("experiment_figure", args=[slug, texts.name]),
        query,
        title=texts.title,
        caption=texts.caption,
        alt=texts.alt,
        size=texts.size,
        narrow_size=texts.narrow_size,
        table=texts.table if texts.rows else None,
    )


@require_safe
@readers_only
@svg_policy
def experiment_figure(request: HttpRequest, slug: str, name: str) -> HttpResponse:
    """Return a figure as SVG. `theme` is light or dark, by default the reader's. `width` is narrow or half a page."""
    experiment = get_visible_experiment(request, slug)
    wave = get_chosen_wave(request, experiment)
    figure, theme, width = FIGURES.get(name), read_theme(request), read_width(request)
    if figure is None:
        raise Http404
    reading = BlindReading.objects.hidden_for(request.user).filter(experiment=experiment).first()
    cached = get_results(BoardQuery(experiment, wave, blind=reading))
    if reading and cached.value is None:
        raise Http404
    fingerprint = cached.fingerprint if cached.value else fingerprint_results(experiment, wave)
    state = _get_figure_state(fingerprint, reading)

    def frames() -> Frames:
        return cached.value.frames if cached.value else get_frames(experiment, wave, fingerprint)

    svg = get_figure_svg(figure, frames, state, width, theme)
    if svg is None:
        raise Http404
    caching = "private, max-age=604800, immutable" if request.GET.get("state") == state[:12] else "private, no-store"
    return HttpResponse(svg, content_type="image/svg+xml", headers={"Cache-Control": caching})


def _get_figure_state(fingerprint: str, reading: BlindReading | None) -> str:
    """Return the state behind the figures: the letters of a blind reading, and the rows."""
    return f"{reading.pk}-{fingerprint}" if reading else fingerprint


@require_safe
@readers_only
@svg_policy
@hides_model_names()
def cost_figure_view(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the figure of a measure against cost as SVG."""
    experiment = get_visible_experiment(request, slug)
    wave = get_chosen_wave(request, experiment)
    theme, width = read_theme(request), read_width(request)
    reading = BlindReading.objects.hidden_for(request.user).filter(experiment=experiment).first()
    query = BoardForm({"missing": request.GET.get("missing", "")}, {}).make_query(experiment, wave, reading)
    board = get_leaderboard(query)
    measures = [measure for measure in board.measures if measure.key == request.GET.get("measure")] if board else []
    if board is None or not measures or not cost_figure.has_costs(board, measures[0]):
        raise Http404
    svg = render_svg(lambda: cost_figure.draw_cost_figure(board, measures[0], width), theme)
    return HttpResponse(svg, content_type="image/svg+xml")
