"""The views of the explorer: the guide to each view, its tables and its figures, also those for papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grading_app.results import plot_style
from grading_app.results.figure import Figure
from grading_app.results.parametric.explorer_query import ExplorerQuery
from grading_app.results.parametric.surface import Axis, build_grid, choose_axes, estimate_cells, list_axes
from grading_app.results.parametric.surface_figures import MAX_LINES, PREFIX, write_key
from grading_app.results.parametric.surface_tables import TaskReading, group_by_task, make_readings_table, read_tasks
from grading_app.results.plot_style import DASHES, LINES, MUTED, PIXEL, SMALL

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from grading_app.results.parametric import surface_figures, surface_tables
from grading_app.results.parametric.answer_views import ViewContent, show_compression, show_lengths, show_spectra
from grading_app.results.table import ResultTable

COLUMNS, PANEL_HEIGHT, MAX_TASKS = 3, 130, 18
KEY_HEIGHT = 18
MAX_TICKS = 5


def choose_axis(query: ExplorerQuery, task: str, readings: Sequence[TaskReading]) -> Axis | None:
    """Return the parameter with the largest difference that matters to a condition, else the first one that varies."""
    axes = list_axes(query.counts, task)
    effects = [effect for reading in readings for effect in reading.effects if effect.matters]
    if effects:
        name = max(effects, key=lambda effect: abs(effect.difference)).name
        return next(axis for axis in axes if axis.name == name)
    first, _ = choose_axes(axes)
    return first if first and first.varies else None


def make_overview_figure(query: ExplorerQuery) -> Figure | None:
    """Return the panels of all tasks with a varying parameter, at most MAX_TASKS; None without such a task."""
    groups = group_by_task(read_tasks(query.counts, query.labels))
    panels = [(task, axis) for task, readings in groups.items() if (axis := choose_axis(query, task, readings))]
    panels = panels[:MAX_TASKS]
    if not panels:
        return None
    return Figure(
        f"{PREFIX}overview",
        "All tasks",
        "Accuracy beyond guessing along the parameter that matters most in each task, averaged over the others. Bands: "
        "95 % intervals. At most six conditions are drawn.",
        "Accuracy of each condition along one parameter, in a panel for each task. The table holds the numbers.",
        lambda width: (width, _make_grid(query, panels, width).height),
        lambda width: _draw(query, panels, width),
        lambda: make_readings_table(query),
        page="explorer",
    )


def _make_grid(query: ExplorerQuery, panels: Sequence[tuple[str, Axis]], width: int) -> plot_style.Grid:
    columns = min(len(panels), COLUMNS if width >= plot_style.WIDE else 1)
    key = KEY_HEIGHT * len(query.ordered_conditions[:MAX_LINES])
    return plot_style.Grid(len(panels), columns, width, PANEL_HEIGHT, bottom=50 + key, gap_x=28, gap_y=66)


def _draw(query: ExplorerQuery, panels: Sequence[tuple[str, Axis]], width: int) -> Drawing:
    grid = _make_grid(query, panels, width)
    figure, all_axes = grid.make_panels()
    conditions = query.ordered_conditions[:MAX_LINES]
    for (task, axis), axes in zip(panels, all_axes, strict=True):
        surface = build_grid(query.counts, task, axis, None, {})
        # Values are placed at equal distances, because many parameters double from point to point.
        places = {label: float(index) for index, label in enumerate(axis.labels)}
        for index, condition in enumerate(conditions):
            cells = estimate_cells(query.counts, surface, condition)
            found = [(places[x], cell) for x in axis.labels if (cell := cells.get((x, ""))) and cell.ends]
            if not found:
                continue
            xs, ys = [x for x, _ in found], [cell.value or 0.0 for _, cell in found]
            style: dict[str, Any] = {"color": LINES[index], "linestyle": DASHES[index], "linewidth": 2 * PIXEL}
            axes.plot(xs, ys, marker="o", markersize=4 * PIXEL, **style)
            lows, highs = zip(*(cell.ends or (0.0, 1.0) for _, cell in found), strict=True)
            axes.fill_between(xs, lows, highs, color=LINES[index], alpha=0.14, linewidth=0)
        step = max(1, -(-len(axis.labels) // MAX_TICKS))
        axes.set_xticks([places[x] for x in axis.labels[::step]], list(axis.labels[::step]))
        axes.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel(axis.name, fontsize=SMALL, color=MUTED)
        plot_style.write_head(axes, plot_style.shorten(task, grid.panel_width))
        plot_style.draw_gridlines(axes, "y")
    key = KEY_HEIGHT * len(conditions)
    for index, condition in enumerate(conditions):
        write_key(figure, index, query.labels[condition], LINES[index], DASHES[index], (width, grid.height, key))
    return figure


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
