"""The site's leaderboard over parametric experiments on the same items."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from grading_app.parametric.board_figure import compute_board_width, make_figure
from grading_app.parametric.board_tables import (
    DEFAULT_SORT,
    RANKS,
    WEIGHT_LABELS,
    describe_cells,
    make_board_table,
    make_compact_table,
    sort_rows,
)
from grading_app.parametric.model_board import (
    BoardScope,
    BoardState,
    ModelRow,
    Weights,
    list_parametric_experiments,
    list_scopes,
    load_board,
)
from grading_app.results.plot_style import render_png
from grading_app.tables.model_board import make_heads, make_rows
from grading_app.views.result_tables import make_requested_file
from grading_app.views.svg_figures import make_svg_response, read_theme, svg_policy

FIGURE_FORMATS = ("svg", "png")


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
    figure, width = make_figure(state.board, rows), compute_board_width(state.board.tasks)
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
