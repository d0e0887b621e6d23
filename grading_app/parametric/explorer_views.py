"""The views of the explorer: the guide to each view, its tables and its figures, also those for papers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from grading_app.parametric import surface_figures, surface_tables
from grading_app.parametric.answer_views import ViewContent, show_compression, show_lengths, show_spectra
from grading_app.parametric.explorer_query import ExplorerQuery
from grading_app.parametric.overview_figure import make_overview_figure
from grading_app.results.figure import Figure
from grading_app.results.table import ResultTable

Loader = Callable[[ExplorerQuery], ViewContent]


@dataclass(frozen=True, slots=True)
class ViewPage:
    """One view. guide: how to read it, in one or two sentences."""

    name: str
    guide: str
    load: Loader


def _show(make: Callable[[ExplorerQuery], Figure | None], table: Callable[[ExplorerQuery], ResultTable]) -> Loader:
    """Return the loader of a view with one figure and one table."""
    return lambda query: ViewContent([table(query)], [figure] if (figure := make(query)) else [])


VIEW_PAGES: dict[str, ViewPage] = {
    page.name: page
    for page in (
        ViewPage(
            "overview",
            "A sentence for each task and condition, and all of them in one picture. The other views show one task.",
            _show(make_overview_figure, surface_tables.make_readings_table),
        ),
        ViewPage(
            "map",
            "Each cell is a point of the task: accuracy beyond guessing, its 95 % interval, and the answers behind it. "
            "A cell leads to its trials.",
            _show(surface_figures.make_surface_figure, surface_tables.make_map_table),
        ),
        ViewPage(
            "curves",
            "Each line shows how accuracy falls as one parameter grows. Where bands overlap, the data hardly "
            "distinguish the conditions.",
            _show(surface_figures.make_curve_figure, surface_tables.make_curve_table),
        ),
        ViewPage(
            "models",
            "The same cells for every condition: look for the cell where each condition begins to fail.",
            _show(surface_figures.make_models_figure, surface_tables.make_models_table),
        ),
        ViewPage(
            "difference",
            "Each cell is the compared condition (B) minus the chosen condition (A). Coloured cells have an interval "
            "that does not include 0.",
            _show(surface_figures.make_difference_figure, surface_tables.make_difference_table),
        ),
        ViewPage(
            "tasks",
            "Further out is better. A condition with a dent fails in that task, whatever its mean is.",
            _show(surface_figures.make_task_figure, surface_tables.make_tasks_table),
        ),
        ViewPage(
            "clusters",
            "Conditions with a common letter form a cluster: all of their intervals overlap, so their order is "
            "uncertain.",
            _show(surface_figures.make_cluster_figure, surface_tables.make_clusters_table),
        ),
        ViewPage(
            "compression",
            "A low ratio means that the text repeats itself. If cut-off answers compress far more than right answers, "
            "the model was caught in a loop. If both compress alike, the model needed more tokens.",
            show_compression,
        ),
        ViewPage(
            "tokens",
            "Finished is the probability that an answer ends within this number of tokens if none were cut off. Right "
            "and cut off are shares of all answers. If finished still rises at the limit, a higher limit would "
            "finish more answers.",
            show_lengths,
        ),
        ViewPage(
            "prompts",
            "Equal spectra mean that the points of a task differ in content, not in the form of the text. A point with "
            "a different spectrum is worded differently, so that its difficulty may come from the form.",
            show_spectra,
        ),
    )
}

PAPER_FIGURES: Sequence[tuple[str, Callable[[ExplorerQuery], Figure | None]]] = (
    ("map", surface_figures.make_map_figure),
    ("map", surface_figures.make_surface_figure),
    ("curves", surface_figures.make_curve_figure),
    ("models", surface_figures.make_models_figure),
    ("difference", surface_figures.make_difference_figure),
)
"""The views whose figures every paper may need, and the makers of these figures."""


def list_paper_figures(query: ExplorerQuery) -> Iterator[Figure]:
    """Yield the figures of PAPER_FIGURES for one task."""
    for view, make in PAPER_FIGURES:
        if figure := make(replace(query, view=view)):
            yield figure
