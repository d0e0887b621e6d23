"""The views of the explorer: the sentence that says how to read each, its tables and its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from grading_app.reports.cached_aggregates import Cached
from grading_app.reports.result_table import ResultTable
from grading_app.surfaces import surface_tables
from grading_app.surfaces.question import Question
from grading_app.surfaces.surface_figures import FIGURES, SurfaceFigure


@dataclass(frozen=True, slots=True)
class Shown:
    """What a view shows. cached: the state of its own stored numbers, if it has any. note: on samples."""

    tables: Sequence[ResultTable]
    figures: Sequence[SurfaceFigure]
    cached: Cached[Any] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ViewPage:
    """reading: how to read the view, in a sentence or two."""

    name: str
    reading: str
    load: Callable[[Question], Shown]


def _of(name: str, table: Callable[[Question], ResultTable], *figures: str) -> Callable[[Question], Shown]:
    return lambda question: Shown([table(question)], [FIGURES[figure] for figure in figures or (name,)])


VIEW_PAGES: dict[str, ViewPage] = {
    page.name: page
    for page in (
        ViewPage(
            "map",
            "Each cell is a point of the task: accuracy beyond guessing, its 95 % interval, and the answers behind it. "
            "A cell leads to its trials.",
            _of("map", surface_tables.map_table, "surface"),
        ),
        ViewPage(
            "curves",
            "Each line shows how accuracy falls as one parameter grows. Where bands overlap, the data hardly tell the "
            "conditions apart.",
            _of("curves", surface_tables.curve_table),
        ),
        ViewPage(
            "models",
            "The same cells for every condition: look for the place where each begins to fail.",
            _of("models", surface_tables.models_table),
        ),
        ViewPage(
            "difference",
            "Each cell is the compared condition (B) minus the chosen one (A). Coloured cells have an interval that "
            "does not hold 0.",
            _of("difference", surface_tables.difference_table),
        ),
        ViewPage(
            "tasks",
            "Further out is better. A condition with a dent fails in that task, whatever its mean is.",
            _of("tasks", surface_tables.tasks_table),
        ),
        ViewPage(
            "clusters",
            "Conditions with a common letter form a cluster: all of their intervals overlap, so their order is not "
            "known.",
            _of("clusters", surface_tables.clusters_table),
        ),
    )
}
