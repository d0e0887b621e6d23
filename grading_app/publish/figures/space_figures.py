"""The figures of an experiment on parametric tasks: its surface, curves, differences, and its rows of the leaderboard.

The choices of the explorer are in the address with a prefix, because x and y label the axes of a printed figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from django.db.models import Sum
from django.http import QueryDict
from django.utils.http import urlencode

from grading_app.parametric import board_tables, heat_figure, surface_tables
from grading_app.parametric.board_figure import make_board_panel
from grading_app.parametric.explorer_load import load_explorer
from grading_app.parametric.explorer_query import ExplorerQuery
from grading_app.parametric.model_board import load_board
from grading_app.parametric.surface_figures import FIGURES
from grading_app.publish.figures.figure_source import FigureSource
from grading_app.publish.figures.kinds import PaperFigure
from grading_app.results.table import ResultTable
from runs_app.models import Experiment

PREFIX = "space-"
VIEWS: Mapping[str, tuple[str, Callable[[ExplorerQuery], ResultTable]]] = {
    "map": ("map", surface_tables.make_map_table),
    "surface": ("map", surface_tables.make_map_table),
    "curves": ("curves", surface_tables.make_curve_table),
    "models": ("models", surface_tables.make_models_table),
    "difference": ("difference", surface_tables.make_difference_table),
}
"""By figure: the view of the explorer that shows it, and the table of its numbers."""


def make_figures_query(choices: Mapping[str, str]) -> str:
    """Return the query of the figures page for choices of the explorer."""
    return urlencode({name if name == "wave" else PREFIX + name: value for name, value in choices.items()})


def read_choices(data: QueryDict) -> dict[str, str]:
    """Return the choices of the explorer in an address of the figures page."""
    choices = {name.removeprefix(PREFIX): value for name, value in data.items() if name.startswith(PREFIX)}
    return {name: str(value) for name, value in {**choices, "wave": data.get("wave", "")}.items() if value}


def list_space_figures(source: FigureSource) -> Iterator[PaperFigure]:
    """Yield the figures of the explorer for one task, and the experiment's rows of the leaderboard."""
    if not source.experiment.dataset.is_parametric:
        return
    explorer = load_explorer(source.experiment, read_choices(source.data))
    source.is_waiting = source.is_waiting or (explorer.cached is not None and explorer.cached.value is None)
    if explorer.query is None:
        return
    for name, (view, table) in VIEWS.items():
        figure, query = FIGURES[name], replace(explorer.query, view=view)
        if not figure.is_shown(query) or (name == "difference" and len(query.labels) < 2):
            continue
        yield PaperFigure(
            f"{PREFIX}{name}",
            f"{figure.title}: {query.task}",
            partial(figure.draw, query),
            partial(table, query),
            figure.caption,
            figure.alt(query),
            page="explorer",
        )
    yield from _list_board_figures(source)


def _list_board_figures(source: FigureSource) -> Iterator[PaperFigure]:
    experiments = Experiment.objects.filter(pk=source.experiment.pk).annotate(answers=Sum("runs__n_done"))
    board = load_board(list(experiments.select_related("dataset"))).board
    if not board.rows:
        return
    rows = board_tables.sort_rows(board, board_tables.DEFAULT_SORT)
    panels = [make_board_panel(board.tasks, rows)]
    weights = board_tables.WEIGHT_LABELS[board.weights].lower()
    yield PaperFigure(
        f"{PREFIX}leaderboard",
        "Leaderboard of the tasks",
        lambda width: heat_figure.draw_heat_map(panels, width),
        lambda: board_tables.make_board_table(board, rows),
        f"Each cell: the 95 % interval of accuracy beyond guessing ({weights}), and the share of cut-off answers in "
        "brackets. Shade: the middle of the interval.",
        "Scores of each model, prompt and sampler by task. The table holds the numbers.",
        page="explorer",
    )
