"""The explorer of an experiment on a parametric dataset: surfaces, curves, differences, and analyses of answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from grading_app.parametric.explorer_load import load_explorer
from grading_app.parametric.explorer_query import VIEWS, ExplorerQuery
from grading_app.parametric.explorer_views import VIEW_PAGES
from grading_app.parametric.surface import subtract_estimates
from grading_app.parametric.surface_figures import describe_difference, get_difference_level
from grading_app.publish.figures.figure_set import make_explorer_query
from grading_app.results.table import ResultTable
from grading_app.views.result_tables import get_table_context, make_requested_file
from grading_app.views.svg_figures import make_figure_context
from runs_app.models import Experiment, Run
from runs_app.views.permissions import get_visible_experiment

MAX_ROWS = 60  # Rows of a table on the page.


@require_safe
@readers_only
def explorer(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    loaded = load_explorer(experiment, request.GET)
    context: dict[str, Any] = {"experiment": experiment, "state": experiment.state, "loaded": loaded}
    query = loaded.query
    if query is None or loaded.form is None:
        return render(request, "grading_app/explorer.html", {**context, "here": request.get_full_path()})
    page = VIEW_PAGES[query.view]
    content = page.load(query)
    tables = list(content.tables)
    if (file := make_requested_file(request, tables, f"{slug}-explorer")) is not None:
        return file
    figure_query = make_explorer_query({**loaded.form.parameters, "view": query.view})
    views = [
        {
            "label": label,
            "address": f"?{urlencode({'view': name, **loaded.form.parameters})}",
            "is_current": name == loaded.form.chosen["view"],
            "starts_analyses": name == "tasks",
        }
        for name, label in VIEWS.items()
    ]
    context |= {
        "form": loaded.form,
        "query": query,
        "page": page,
        "cached": loaded.cached,
        "more_cached": content.cached,
        "here": request.get_full_path(),
        "views": views,
        "heat": _make_heat_map(experiment, query) if query.view in ("map", "difference") else None,
        "figures": [make_figure_context(figure, slug, figure_query, has_table=False) for figure in content.figures],
        "tables": [get_table_context(_shorten_table(table)) for table in tables],
        "sample_note": content.note,
        "figures_query": make_explorer_query(loaded.form.parameters),
    }
    return render(request, "grading_app/explorer.html", context)


def _shorten_table(table: ResultTable) -> ResultTable:
    """Return the table with the rows for the page, and a note if there are more."""
    if len(table.rows) <= MAX_ROWS:
        return table
    note = f"The first {MAX_ROWS} of {len(table.rows):,} rows. The files hold all of them."
    return replace(table, rows=table.rows[:MAX_ROWS], notes=[*table.notes, note])


def _make_heat_map(experiment: Experiment, query: ExplorerQuery) -> dict[str, Any]:
    """Return the heat map: a row of cells for each value of y, each cell with the address of its trials."""
    cells_by_place = (
        _make_difference_cells(query)
        if query.view == "difference"
        else {
            place: {
                "tone": "none" if cell.level is None else f"level-{cell.level}",
                "value": cell.value,
                "interval": cell.ends,
                "n": cell.tally.total,
                "truncation": cell.tally.truncation if cell.is_cut else None,
            }
            for place, cell in query.estimate_cells(query.condition).items()
        }
    )
    condition = query.against if query.view == "difference" else query.condition
    trial_filter: dict[str, Any] = {"experiment": experiment.slug, "condition": condition, "category": query.task}
    if query.wave:
        trial_filter["run"] = (
            Run.objects.filter(condition=condition, wave=query.wave).values_list("pk", flat=True).first()
        )
    trial_list_url = reverse("trial_list")
    rows = []
    for y in query.grid.rows:
        cells: list[dict[str, Any] | None] = []
        for x in query.x.labels:
            cell = cells_by_place.get((x, y))
            point = urlencode(query.grid.get_parameters(x, y))
            parameters = urlencode({**trial_filter, **({"point": point} if point else {})})
            cells.append({**cell, "address": f"{trial_list_url}?{parameters}"} if cell else None)
        rows.append({"label": y, "cells": cells})
    return {
        "rows": rows,
        "columns": query.x.labels,
        "x": query.x.name,
        "y": query.y.name if query.y else "",
    }


def _make_difference_cells(query: ExplorerQuery) -> dict[tuple[str, str], dict[str, Any]]:
    first, second = query.estimate_cells(query.condition), query.estimate_cells(query.against)
    differences = {place: subtract_estimates(cell, second[place]) for place, cell in first.items() if place in second}
    return {
        place: {
            "tone": "" if (level := get_difference_level(*difference)) is None else f"level-{level}",
            "text": describe_difference(*difference),
            "n": second[place].tally.total,
        }
        for place, difference in differences.items()
        if difference
    }
