"""The explorer of an experiment on a parametric dataset: surfaces, curves, differences, and analyses of answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from evalsite.lib.text.hashing import hash_content
from grading_app.parametric.explorer_load import load_explorer
from grading_app.parametric.explorer_query import VIEWS, ExplorerForm, ExplorerQuery
from grading_app.parametric.explorer_views import VIEW_PAGES
from grading_app.parametric.surface import subtract_estimates
from grading_app.parametric.surface_figures import SurfaceFigure, describe_difference, get_difference_level
from grading_app.publish.figures.space_figures import make_figures_query
from grading_app.results.plot_style import NARROW, WIDE, render_svg
from grading_app.results.table import ResultTable
from grading_app.views.result_tables import get_table_context, make_requested_file
from grading_app.views.svg_figures import make_figure_context, read_theme, read_width, svg_policy
from runs_app.models import Experiment, Run
from runs_app.views.permissions import get_visible_experiment

FIGURE_VERSION = 1  # Increase it when figures are drawn differently.
CACHE_SECONDS = 24 * 3600
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
    context |= {
        "form": loaded.form,
        "query": query,
        "page": page,
        "cached": loaded.cached,
        "more_cached": content.cached,
        "here": request.get_full_path(),
        "views": _list_views(loaded.form),
        "heat": _make_heat_map(experiment, query) if query.view in ("map", "difference") else None,
        "figures": [
            _make_figure(request, experiment, query, figure) for figure in content.figures if figure.is_shown(query)
        ],
        "tables": [get_table_context(_shorten_table(table)) for table in tables],
        "sample_note": content.note,
        "figures_query": make_figures_query(loaded.form.parameters),
    }
    return render(request, "grading_app/explorer.html", context)


@require_safe
@readers_only
@svg_policy
def explorer_figure(request: HttpRequest, slug: str, name: str) -> HttpResponse:
    """Return a figure of the explorer as SVG, for the choices in the address."""
    experiment = get_visible_experiment(request, slug)
    loaded = load_explorer(experiment, request.GET)
    query = loaded.query
    theme, width = read_theme(request), read_width(request)
    if query is None or loaded.cached is None:
        raise Http404
    figure = next(
        (candidate for candidate in VIEW_PAGES[query.view].load(query).figures if candidate.name == name), None
    )
    if figure is None or not figure.is_shown(query):
        raise Http404
    key = hash_content(
        [FIGURE_VERSION, loaded.cached.fingerprint, slug, name, width, theme, sorted(request.GET.items())]
    )
    svg = cache.get_or_set(
        f"explorer_figure:{key}", lambda: render_svg(lambda: figure.draw(query, width), theme), CACHE_SECONDS
    )
    return HttpResponse(svg, content_type="image/svg+xml")


def _shorten_table(table: ResultTable) -> ResultTable:
    """Return the table with the rows for the page, and a note if there are more."""
    if len(table.rows) <= MAX_ROWS:
        return table
    note = f"The first {MAX_ROWS} of {len(table.rows):,} rows. The files hold all of them."
    return replace(table, rows=table.rows[:MAX_ROWS], notes=[*table.notes, note])


def _list_views(form: ExplorerForm) -> list[dict[str, Any]]:
    return [
        {
            "label": label,
            "address": f"?{urlencode({'view': name, **form.parameters})}",
            "is_current": name == form.chosen["view"],
            "starts_analyses": name == "tasks",
        }
        for name, label in VIEWS.items()
    ]


def _make_heat_map(experiment: Experiment, query: ExplorerQuery) -> dict[str, Any]:
    """Return the heat map: a row of cells for each value of y, each cell with the address of its trials."""
    cells_by_place = _make_difference_cells(query) if query.view == "difference" else _make_plain_cells(query)
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


def _make_plain_cells(query: ExplorerQuery) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        place: {
            "tone": "none" if cell.level is None else f"level-{cell.level}",
            "value": cell.value,
            "interval": cell.ends,
            "n": cell.tally.total,
            "truncation": cell.tally.truncation if cell.is_cut else None,
        }
        for place, cell in query.estimate_cells(query.condition).items()
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


def _make_figure(
    request: HttpRequest, experiment: Experiment, query: ExplorerQuery, figure: SurfaceFigure
) -> dict[str, Any]:
    parameters = {
        name: str(value) for name, value in request.GET.items() if name not in ("theme", "width", "table", "format")
    }
    return make_figure_context(
        figure.name,
        reverse("explorer_figure", args=[experiment.slug, figure.name]),
        parameters,
        title=figure.title,
        caption=figure.caption,
        alt=figure.alt(query),
        size=figure.size(query, WIDE),
        narrow_size=figure.size(query, NARROW),
    )
