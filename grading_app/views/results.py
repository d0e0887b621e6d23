"""The results page of an experiment."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from datasets_app.models import Item
from evalsite.lib.permissions import readers_only
from evalsite.lib.web.model_names import hides_model_names
from grading_app.models import BlindReading
from grading_app.results.frames import load_condition_labels
from grading_app.results.leaderboard import BoardQuery
from grading_app.results.outcome_table import make_outcome_table
from grading_app.results.scope import MISSING_WRONG
from grading_app.results.stored_results import StoredResults, get_results
from grading_app.results.table import ResultTable
from grading_app.views.blind import get_blind_context
from grading_app.views.result_tables import get_table_context, make_requested_file
from grading_app.views.svg_figures import STATE_LENGTH, make_figure_context
from runs_app.models import Experiment, Wave
from runs_app.views.permissions import get_chosen_wave, get_visible_experiment, may_edit

FIRST_FIGURES = {True: ("norms", "ratings"), False: ("scores", "accuracy", "points")}
"""The figure beside the table is the first of these that the experiment has; True: if its first measure is a rating."""
WIDE_TABLE = 5
"""A table with more columns takes the width of the page; its figure stands beside the items, if these are narrow."""
NARROW_ITEMS = 3
"""Items with a text, or with more cells in a row, take the width of the page."""


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
    outcomes = None
    if results is not None:
        outcomes = make_outcome_table(results.outcomes, labels, is_rated=bool(results.dimensions), slug=slug)
        tables = [*(screen.tables if screen else []), outcomes]
        if (file := make_requested_file(request, tables, f"{slug}-results")) is not None:
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
        context["answers"] = get_table_context(outcomes) if outcomes and has_answers else None
    if results is not None and screen is not None:
        order = request.GET.get("sort", "")
        state = f"{reading.pk}-{cached.fingerprint}" if reading else cached.fingerprint
        of_figure = {"state": state[:STATE_LENGTH]} | ({"wave": str(wave.number)} if wave else {})
        figures = {content["name"]: make_figure_context(content, slug, of_figure) for content in results.figures}
        if screen.cost:
            missing = {"missing": request.GET["missing"]} if request.GET.get("missing") else {}
            figures["cost"] = make_figure_context(screen.cost, slug, of_figure | missing)
        names = FIRST_FIGURES[results.board.measures[0].is_rating]
        first_name = next((name for name in names if name in figures), "")
        items = _load_items(results)
        is_wide = len(screen.first["columns"]) > WIDE_TABLE
        are_narrow = all(len(cells) <= NARROW_ITEMS and not item.input for item, cells in items)
        context |= {
            "first": get_table_context(ResultTable.from_content(screen.first), order),
            "further": [
                get_table_context(ResultTable.from_content(content), order)
                for content in (*screen.baselines, *screen.further, screen.effort)
            ],
            "items": items,
            "is_wide": is_wide,
            "items_beside": is_wide and are_narrow,
            "figure": figures.pop(first_name, None),
            "figures": list(figures.values()),
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
