"""The figure of all tasks in small panels, with a line for each condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grading_app.parametric.explorer_query import ExplorerQuery
from grading_app.parametric.readings import TaskReading, group_by_task, read_tasks
from grading_app.parametric.surface import Axis, build_grid, choose_axes, estimate_cells, list_axes
from grading_app.parametric.surface_figures import MAX_LINES, PREFIX, write_key
from grading_app.parametric.surface_tables import make_readings_table
from grading_app.results import plot_style
from grading_app.results.figure import Figure
from grading_app.results.plot_style import DASHES, LINES, MUTED, PIXEL, SMALL

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

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
        lambda width: _compute_size(query, panels, width),
        lambda width: _draw(query, panels, width),
        lambda: make_readings_table(query),
        page="explorer",
    )


def _make_grid(query: ExplorerQuery, panels: Sequence[tuple[str, Axis]], width: int) -> plot_style.Grid:
    columns = min(len(panels), COLUMNS if width >= plot_style.WIDE else 1)
    key = KEY_HEIGHT * len(query.ordered_conditions[:MAX_LINES])
    return plot_style.Grid(len(panels), columns, width, PANEL_HEIGHT, bottom=50 + key, gap_x=28, gap_y=66)


def _compute_size(query: ExplorerQuery, panels: Sequence[tuple[str, Axis]], width: int) -> tuple[int, int]:
    return width, _make_grid(query, panels, width).height


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
