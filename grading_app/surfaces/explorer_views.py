"""The views of the explorer: the sentence that says how to read each, its tables and its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grading_app.reports.result_table import ResultTable
from grading_app.surfaces import surface_tables
from grading_app.surfaces.answer_views import ViewContent, show_compression, show_lengths, show_spectra
from grading_app.surfaces.explorer_query import ExplorerQuery
from grading_app.surfaces.surface_figures import FIGURES


@dataclass(frozen=True, slots=True)
class ViewPage:
    """reading: how to read the view, in a sentence or two."""

    name: str
    reading: str
    load: Callable[[ExplorerQuery], ViewContent]


def _show_table(
    name: str, table: Callable[[ExplorerQuery], ResultTable], *figures: str
) -> Callable[[ExplorerQuery], ViewContent]:
    return lambda query: ViewContent([table(query)], [FIGURES[figure] for figure in figures or (name,)])


VIEW_PAGES: dict[str, ViewPage] = {
    page.name: page
    for page in (
        ViewPage(
            "map",
            "Each cell is a point of the task: accuracy beyond guessing, its 95 % interval, and the answers behind it. "
            "A cell leads to its trials.",
            _show_table("map", surface_tables.make_map_table, "surface"),
        ),
        ViewPage(
            "curves",
            "Each line shows how accuracy falls as one parameter grows. Where bands overlap, the data hardly tell the "
            "conditions apart.",
            _show_table("curves", surface_tables.make_curve_table),
        ),
        ViewPage(
            "models",
            "The same cells for every condition: look for the place where each begins to fail.",
            _show_table("models", surface_tables.make_models_table),
        ),
        ViewPage(
            "difference",
            "Each cell is the compared condition (B) minus the chosen one (A). Coloured cells have an interval that "
            "does not hold 0.",
            _show_table("difference", surface_tables.make_difference_table),
        ),
        ViewPage(
            "tasks",
            "Further out is better. A condition with a dent fails in that task, whatever its mean is.",
            _show_table("tasks", surface_tables.make_tasks_table),
        ),
        ViewPage(
            "clusters",
            "Conditions with a common letter form a cluster: all of their intervals overlap, so their order is not "
            "known.",
            _show_table("clusters", surface_tables.make_clusters_table),
        ),
        ViewPage(
            "compression",
            "A low ratio means that the text repeats itself. If cut-off answers compress far more than right ones, the "
            "model was caught in a loop; if they compress alike, it needed more room.",
            show_compression,
        ),
        ViewPage(
            "hazard",
            "Finished is the chance that an answer ends within so many tokens if none were cut off. Right and cut off "
            "are "
            "shares of all answers. If finished still rises at the limit, a higher limit would finish more answers.",
            show_lengths,
        ),
        ViewPage(
            "spectrum",
            "Equal spectra mean that the points of a task differ in what is asked and not in the form of the text. A "
            "point that stands apart is worded in another way, so that its difficulty may be one of form.",
            show_spectra,
        ),
    )
}
