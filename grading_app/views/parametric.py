"""The pages of parametric experiments: the explorer, the points of an adaptive run, and the site's leaderboard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django import forms
from django.db.models import Min
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from evalsite.lib.web.list_page import paginate_table
from grading_app.grading.adaptive_decisions import describe_earlier_rule
from grading_app.publish.figures.figure_set import make_explorer_query
from grading_app.results.cached_aggregates import fingerprint_results
from grading_app.results.figures.points import make_figure
from grading_app.results.frames import get_frames
from grading_app.results.parametric.board_tables_and_figure import (
    DEFAULT_SORT,
    RANKS,
    WEIGHT_LABELS,
    compute_board_width,
    describe_cells,
    make_board_figure,
    make_board_table,
    make_compact_table,
    sort_rows,
)
from grading_app.results.parametric.explorer_query import VIEWS, ExplorerQuery, load_explorer
from grading_app.results.parametric.explorer_views import VIEW_PAGES
from grading_app.results.parametric.model_board import (
    BoardScope,
    BoardState,
    ModelRow,
    Weights,
    list_parametric_experiments,
    list_scopes,
    load_board,
)
from grading_app.results.parametric.surface import subtract_estimates
from grading_app.results.parametric.surface_figures import describe_difference, get_difference_level
from grading_app.results.plot_style import render_png
from grading_app.results.table import ResultTable
from grading_app.views.tables.model_board import make_heads, make_rows
from grading_app.views.tables.results import PointTable
from grading_app.views.tables_and_figures import (
    STATE_LENGTH,
    get_table_context,
    make_figure_context,
    make_requested_file,
    make_svg_response,
    read_theme,
    svg_policy,
)
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.models import Experiment, Point, Run
from runs_app.models.totals import Totals
from runs_app.monitoring.point_status import PointLine, compute_savings, describe_rule
from runs_app.planning.points import read_adaptive_spec
from runs_app.stopping import coverage
from runs_app.stopping.coverage import (
    CoverageRange,
    RepeatedCoverage,
    RepeatedDesign,
    find_coverage,
    find_nearest_coverage,
)
from runs_app.views.permissions import get_chosen_wave, get_visible_experiment

MAX_ROWS = 60  # Rows of a table on the page.
LEADERBOARD_ROWS = 25
FIGURE_FORMATS = ("svg", "png")


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


@require_safe
@readers_only
def experiment_points(request: HttpRequest, slug: str) -> HttpResponse:
    """Show all points, or the points of one wave, condition or status in the address."""
    experiment = get_visible_experiment(request, slug)
    spec = read_adaptive_spec(experiment)
    wave = get_chosen_wave(request, experiment)
    state = fingerprint_results(experiment, wave)
    frames = get_frames(experiment, wave, state)
    status = request.GET.get("status", "")
    if status and status not in Point.Status.values:
        raise Http404
    condition = request.GET.get("condition", "")
    lines = [line for line in frames.points if status in ("", line.status) and condition in ("", str(line.condition))]
    table = PointTable(lines, labels=frames.labels)
    paginate_table(request, table, LEADERBOARD_ROWS)
    figure = make_figure(frames)
    query = {"state": state[:STATE_LENGTH]} | ({"wave": str(wave.number)} if wave else {})
    counts = [(kind, sum(line.status == kind.value for line in frames.points)) for kind in Point.Status]
    covered_tasks = []
    if spec:  # Each task with its own rule and half-width.
        coverages = [(name, _find_coverage(spec.for_task(name), frames.points)) for name in sorted(spec.tasks)]
        covered_tasks = [(name, covered) for name, covered in coverages if covered]
    context = {
        "experiment": experiment,
        "state": experiment.find_state(Totals.of(experiment.runs.all())),
        "waves": list(experiment.waves.all()),
        "wave": wave,
        "savings": compute_savings(frames.points),
        "rule": describe_rule(spec) if spec else [],
        "is_rated": spec is not None and spec.is_rated,
        "covered": _find_coverage(spec, frames.points) if spec else None,
        "covered_tasks": covered_tasks,
        "is_simulated": spec is not None and spec.confidence == 0.95 and spec.correction == "mapped",
        "uses_excess_counts": spec is not None and spec.correction == "excess_counts",
        "repeats": experiment.samples > 1,
        "repeated": _find_repeated_coverage(experiment, spec) if spec else None,
        "statuses": [{"value": kind.value, "label": kind.label, "n": n} for kind, n in counts if n],
        "table": table if lines else None,
        "earlier_rule": describe_earlier_rule(experiment),
        "figure": make_figure_context(figure, slug, query) if figure else None,
        "export": reverse("experiment_export", args=[slug, "points", "csv"]),
    }
    return render(request, "grading_app/experiment_points.html", context)


def _find_coverage(spec: AdaptiveSpec, lines: list[PointLine]) -> CoverageRange | None:
    """Return the coverage of the most similar simulated setting.

    For ratings, use the shortest scale, where the half-width is the largest share of the scale.
    """
    if spec.targetci is None:
        return None
    if not spec.is_rated:
        return find_nearest_coverage(spec.targetci, spec.round)
    lengths = [line.scale[1] - line.scale[0] for line in lines if line.scale]
    return coverage.find_mean_coverage(spec.targetci, spec.round, min(lengths)) if lengths else None


def _find_repeated_coverage(experiment: Experiment, spec: AdaptiveSpec) -> RepeatedCoverage | None:
    """Return the coverage of the point with the fewest items, simulated for this design.

    Return None if no point repeats an item, or for ratings, where items count once.
    """
    if spec.is_rated or spec.correction != "mapped" or experiment.samples == 1 or spec.targetci is None:
        return None
    points = Point.objects.filter(run__experiment=experiment, n_items__lt=spec.max)
    items = points.aggregate(least=Min("n_items"))["least"]
    if not items:
        return None
    maximum = min(spec.max, items * experiment.samples)
    return find_coverage(RepeatedDesign(items, maximum, min(spec.round, maximum), spec.targetci, spec.confidence))


class ModelBoardForm(forms.Form):
    """The compared items and the filter of the rows, as the address holds them."""

    on = forms.ChoiceField(label="Items", required=False)
    family = forms.ChoiceField(label="Family", required=False)
    group = forms.ChoiceField(label="Group", required=False)
    weights = forms.ChoiceField(label="Value of a task", required=False)
    limit = forms.IntegerField(label="Token limit", required=False, min_value=1)
    sort = forms.CharField(required=False, widget=forms.HiddenInput())

    def __init__(self, data: Any, scopes: list[BoardScope]) -> None:
        super().__init__(data)
        self.scopes = {scope.key: scope for scope in scopes}
        self._set_choices("on", [(scope.key, scope.label) for scope in scopes])
        self._offer_weights("Default")

    def _set_choices(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 - for the type
        field.choices = choices

    def offer_rows(self, state: BoardState) -> None:
        """Offer the families and groups of the rows, and the default weights."""
        rows = state.board.rows
        self._offer_weights(f"Default: {WEIGHT_LABELS[state.default_weights].lower()}")
        families, groups = {row.family for row in rows}, {group for row in rows for group in row.groups}
        self._set_choices("family", [("", "Any"), *((name, name) for name in sorted(families))])
        self._set_choices("group", [("", "Any"), *((name, name) for name in sorted(groups))])

    @property
    def scope(self) -> BoardScope | None:
        """The chosen scope, or the first scope. Raise Http404 for an unknown scope."""
        key = self.data.get("on", "")
        if key and key not in self.scopes:
            raise Http404
        return self.scopes[key] if key else next(iter(self.scopes.values()), None)

    def _offer_weights(self, default: str) -> None:
        self._set_choices("weights", [("", default), *WEIGHT_LABELS.items()])

    @property
    def chosen_weights(self) -> Weights | None:
        """The chosen weights, or None for the default; an unknown value is an error of the form."""
        return next((weights for weights in WEIGHT_LABELS if weights == self.data.get("weights")), None)

    @property
    def token_limit(self) -> str:
        text = str(self.data.get("limit", "")).strip()
        return text if text.isdecimal() else ""


@require_safe
@readers_only
def leaderboard(request: HttpRequest) -> HttpResponse:
    """Show the leaderboard over the experiments that the reader may see."""
    form, scope, state = _load_board_state(request)
    context: dict[str, Any] = {"filter": {"form": form}, "scope": scope}
    if scope is None or state is None:
        return render(request, "grading_app/model_board.html", context)
    rows, sort = _choose_rows(form, state)
    tasks = state.board.tasks
    tables = [make_board_table(state.board, rows), make_compact_table(state.board, rows)]
    file = make_requested_file(request, tables, "leaderboard")
    if file is not None:
        return file
    query = {name: str(value) for name, value in request.GET.items() if value and name in form.fields}
    figure_view, page_url = "leaderboard_figure", reverse("leaderboard")
    files: list[dict[str, str]] = [
        {"label": "PNG", "address": f"{reverse(figure_view, args=['png'])}?{urlencode(query)}"},
        {"label": "SVG", "address": f"{reverse(figure_view, args=['svg'])}?{urlencode({**query, 'theme': 'light'})}"},
        {"label": "CSV", "address": f"{page_url}?{urlencode({**query, 'table': 'leaderboard', 'format': 'csv'})}"},
        {"label": "LaTeX", "address": f"{page_url}?{urlencode({**query, 'table': 'compact', 'format': 'latex'})}"},
    ]
    context |= {
        "state": state,
        "tasks": tasks,
        "heads": make_heads(tasks, sort, query),
        "rows": make_rows(tasks, rows),
        "n_rows": len(state.board.rows),
        "formula": describe_cells(state.board),
        "weights": WEIGHT_LABELS[state.board.weights],
        "ranks": RANKS,
        "has_incomplete": any(row.incomplete for row in rows),
        "has_others": any(row.others for row in rows),
        "here": request.get_full_path(),
        "files": files,
    }
    return render(request, "grading_app/model_board.html", context)


@require_safe
@readers_only
@svg_policy
def leaderboard_figure(request: HttpRequest, file_format: str) -> HttpResponse:
    """Return the leaderboard as SVG or PNG, with the rows and in the order of the address."""
    form, _, state = _load_board_state(request)
    theme = read_theme(request)
    if state is None or file_format not in FIGURE_FORMATS or not state.board.rows:
        raise Http404
    rows, _ = _choose_rows(form, state)
    figure, width = make_board_figure(state.board, rows), compute_board_width(state.board.tasks)
    if file_format == "svg":
        response = make_svg_response(figure, width, theme)
    else:
        response = HttpResponse(render_png(lambda: figure.draw(width)), content_type="image/png")
    response["Content-Disposition"] = f'attachment; filename="leaderboard.{file_format}"'
    return response


def _load_board_state(request: HttpRequest) -> tuple[ModelBoardForm, BoardScope | None, BoardState | None]:
    experiments = list_parametric_experiments(request.user)
    form = ModelBoardForm(request.GET, list_scopes(experiments))
    scope = form.scope
    if scope is None:
        return form, None, None
    compared = [experiment for experiment in experiments if experiment.dataset_id in scope.datasets]
    state = load_board(compared, form.token_limit, form.chosen_weights)
    form.offer_rows(state)
    return form, scope, state


def _choose_rows(form: ModelBoardForm, state: BoardState) -> tuple[list[ModelRow], str]:
    """Return the rows of the address in its order. Raise Http404 for an unknown order."""
    sort = form.data.get("sort") or DEFAULT_SORT
    try:
        rows = sort_rows(state.board, sort)
    except KeyError as error:
        raise Http404 from error
    if not form.is_valid():
        return [], sort
    family, group = form.cleaned_data["family"], form.cleaned_data["group"]
    return [row for row in rows if family in ("", row.family) and (not group or group in row.groups)], sort
