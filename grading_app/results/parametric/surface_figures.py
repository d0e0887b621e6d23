"""The figures of the explorer: surface, curves, heat maps side by side, differences, tasks and clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grading_app.results import plot_style
from grading_app.results.figure import Figure
from grading_app.results.parametric import heat_figure, surface_tables
from grading_app.results.parametric.explorer_query import ExplorerQuery
from grading_app.results.parametric.heat_figure import HeatPanel
from grading_app.results.parametric.surface import estimate_cells, estimate_tasks, subtract_estimates
from grading_app.results.plot_style import DASHES, LINES, MUTED, PIXEL, SMALL
from grading_app.results.statistic_format import format_coefficient
from grading_app.results.table import ResultTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

PREFIX = "space-"
"""The beginning of the names of these figures, and of their choices in addresses of the figures page."""
MAX_LINES, MAX_PANELS, MAX_ROWS = 6, 12, 40
KEY_HEIGHT = 18  # CSS pixels of a line of the key.


def _make_figure(
    name: str,
    title: str,
    caption: str,
    alt: str,
    query: ExplorerQuery,
    size: Callable[[ExplorerQuery, int], tuple[int, int]],
    draw: Callable[[ExplorerQuery, int], Drawing],
    table: Callable[[ExplorerQuery], ResultTable],
) -> Figure:
    return Figure(
        f"{PREFIX}{name}",
        f"{title}: {query.task}",
        caption,
        f"{alt}: {query.task}. The table holds the numbers.",
        lambda width: size(query, width),
        lambda width: draw(query, width),
        lambda: table(query),
        page="explorer",
    )


def _compute_surface_size(query: ExplorerQuery, width: int) -> tuple[int, int]:
    return width, round(width * 0.82)


def _draw_surface(query: ExplorerQuery, width: int) -> Drawing:
    """Draw the accuracy as a surface, and the lower ends of its intervals as a translucent surface below it."""
    import numpy as np
    from mpl_toolkits.mplot3d.axes3d import Axes3D  # type: ignore[import-untyped]

    assert query.y is not None  # noqa: S101 - `make_surface_figure`
    figure = plot_style.make_figure(*_compute_surface_size(query, width))
    axes: Any = Axes3D(figure, auto_add_to_figure=False, computed_zorder=False)
    figure.add_axes(axes)
    axes.set_position((0.0, 0.04, 0.96, 0.96))
    axes.patch.set_visible(False)
    cells = query.estimate_cells(query.condition)
    xs, ys = query.x.list_positions(), query.y.list_positions()
    grid_x, grid_y = np.meshgrid(xs, ys)
    value, low = np.full(grid_x.shape, np.nan), np.full(grid_x.shape, np.nan)
    cut = []
    for row, y in enumerate(query.y.labels):
        for column, x in enumerate(query.x.labels):
            cell = cells.get((x, y))
            if cell and cell.value is not None and cell.interval is not None:
                value[row, column], low[row, column] = cell.value, cell.interval.low
                cut += [(row, column)] if cell.is_cut else []
    edge: dict[str, Any] = {"linewidth": PIXEL, "shade": False, "rstride": 1, "cstride": 1, "antialiased": True}
    axes.plot_surface(grid_x, grid_y, low, color=plot_style.HUMAN, alpha=0.28, edgecolor=plot_style.HUMAN, **edge)
    axes.plot_surface(grid_x, grid_y, value, color=plot_style.DATA, alpha=0.6, edgecolor=plot_style.DATA, **edge)
    for row, column in cut:
        axes.scatter([xs[column]], [ys[row]], [value[row, column]], color=LINES[4], s=40, marker="X", depthshade=False)
    assert query.y is not None  # noqa: S101
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color((1, 1, 1, 0))
        axis.line.set_color(plot_style.RULE)
        axis._axinfo["grid"].update(color=plot_style.LINE, linewidth=PIXEL)
    axes.tick_params(labelsize=SMALL, labelcolor=MUTED, color=plot_style.RULE, pad=1)
    axes.set_xticks(query.x.list_positions(), query.x.labels)
    axes.set_yticks(query.y.list_positions(), query.y.labels)
    axes.set_zlim(0, 1)
    for write, text in ((axes.set_xlabel, query.x.name), (axes.set_ylabel, query.y.name)):
        write(text, fontsize=SMALL, color=MUTED)
    axes.set_zlabel("accuracy beyond guessing", fontsize=SMALL, color=MUTED)
    axes.view_init(elev=26, azim=-122)
    return figure


def _draw_curves(query: ExplorerQuery, width: int) -> Drawing:
    lines = []
    for condition in query.ordered_conditions[:MAX_LINES]:
        cells = estimate_cells(query.counts, query.line, condition)
        position_by_label = dict(zip(query.x.labels, query.x.list_positions(), strict=True))
        estimates = [
            (position_by_label[x], estimate)
            for x in query.x.labels
            if (estimate := cells.get((x, ""))) and estimate.ends
        ]
        steps = [(position, estimate.value or 0.0, *(estimate.ends or (0.0, 0.0))) for position, estimate in estimates]
        lines.append((query.labels[condition], steps))
    figure, axes = draw_lines(lines, width, query.x.name, "Accuracy beyond guessing")
    axes.set_xticks(query.x.list_positions(), query.x.labels)
    return figure


def draw_lines(
    lines: list[tuple[str, list[tuple[float, float, float, float]]]],
    width: int,
    x_label: str,
    y_label: str,
    *,
    steps: bool = False,
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> tuple[Drawing, Axes]:
    """Draw lines with bands and their key below. A line is its label, and (x, value, low, high) for each point."""
    key = KEY_HEIGHT * len(lines)
    grid = plot_style.Grid(1, 1, width, 280 - 26 - 58, left=48, bottom=58 + key)
    figure, (axes,) = grid.make_panels()
    for index, (label, points) in enumerate(lines):
        colour, dash = LINES[index % len(LINES)], DASHES[index % len(DASHES)]
        if points:
            xs, values, lows, highs = zip(*points, strict=True)
            style: dict[str, Any] = {"drawstyle": "steps-post"} if steps else {"marker": "o", "markersize": 4 * PIXEL}
            axes.plot(xs, values, color=colour, linestyle=dash, linewidth=2 * PIXEL, **style)
            axes.fill_between(xs, lows, highs, color=colour, alpha=0.14, linewidth=0, step="post" if steps else None)
        write_key(figure, index, label, colour, dash, (width, grid.height, key))
    if bounds:
        axes.set_ylim(bounds[0] - 0.02, bounds[1] + 0.02)
    axes.set_xlabel(x_label, fontsize=SMALL, color=MUTED)
    plot_style.write_head(axes, y_label, left=40)
    plot_style.draw_gridlines(axes, "y")
    return figure, axes


def write_key(figure: Drawing, index: int, label: str, colour: str, dash: Any, box: tuple[int, int, int]) -> None:
    from matplotlib.lines import Line2D

    width, height, key = box
    y = (key - KEY_HEIGHT * index - KEY_HEIGHT / 2) / height
    figure.add_artist(Line2D([48 / width, 84 / width], [y, y], color=colour, linestyle=dash, linewidth=2 * PIXEL))
    text = plot_style.shorten(label, width - 104)
    figure.text(92 / width, y, text, fontsize=plot_style.NORMAL, color=plot_style.TEXT, va="center")


def _make_panels(query: ExplorerQuery, limit: int = MAX_PANELS) -> list[HeatPanel]:
    panels = []
    for condition in query.ordered_conditions[:limit]:
        cells = query.estimate_cells(condition)
        rows = [
            (y, [(cell.text, cell.level) if (cell := cells.get((x, y))) else ("–", None) for x in query.x.labels])
            for y in query.grid.rows
        ]
        panels.append(HeatPanel(query.labels[condition], query.x.labels, rows))
    return panels


def _make_difference_panel(query: ExplorerQuery) -> HeatPanel:
    first, second = query.estimate_cells(query.condition), query.estimate_cells(query.against)
    rows = []
    for y in query.grid.rows:
        cells: list[tuple[str, int | None]] = []
        for x in query.x.labels:
            a, b = first.get((x, y)), second.get((x, y))
            difference = subtract_estimates(a, b) if a and b else None
            cells.append(
                (describe_difference(*difference), get_difference_level(*difference)) if difference else ("–", None)
            )
        rows.append((y, cells))
    return HeatPanel("B − A", query.x.labels, rows)


def describe_difference(value: float, low: float, high: float) -> str:
    """Return `+.12 (−.01 to .25)`."""
    sign = "+" if value > 0 else ""
    return f"{sign}{format_coefficient(value)} ({format_coefficient(low)} to {format_coefficient(high)})"


def get_difference_level(value: float, low: float, high: float) -> int | None:
    """Return the shade of a difference: None if its interval includes 0, stronger from .3 on."""
    if low <= 0 <= high:
        return None
    if value > 0:
        return 4 if value >= 0.3 else 3
    return 0 if value <= -0.3 else 1


def _compute_spider_size(query: ExplorerQuery, width: int) -> tuple[int, int]:
    return width, min(width, 460) + KEY_HEIGHT * len(query.ordered_conditions[:MAX_LINES]) + 12


def _draw_spider(query: ExplorerQuery, width: int) -> Drawing:
    """Draw a radar chart with a spoke per task, and a line and an interval band per condition."""
    import numpy as np

    _, height = _compute_spider_size(query, width)
    figure = plot_style.make_figure(width, height)
    lines = query.ordered_conditions[:MAX_LINES]
    key = KEY_HEIGHT * len(lines) + 12
    side = height - key - 70
    box = ((width - side) / 2 / width, (key + 35) / height, side / width, side / height)
    axes: Any = figure.add_axes(box, projection="polar")
    axes.set_facecolor("none")
    tasks = query.counts.task_names
    angles = np.linspace(0, 2 * np.pi, len(tasks), endpoint=False)
    closed = [*angles, angles[0]]
    for index, condition in enumerate(lines):
        estimates = estimate_tasks(query.counts, condition)
        values, lows, highs = ([0.0] * len(tasks) for _ in range(3))
        for place, task in enumerate(tasks):
            estimate = estimates.get(task)
            if estimate is not None and estimate.value is not None and estimate.ends is not None:
                values[place], (lows[place], highs[place]) = estimate.value, estimate.ends
        colour, dash = LINES[index], DASHES[index]
        axes.plot(closed, [*values, values[0]], color=colour, linestyle=dash, linewidth=2 * PIXEL)
        axes.fill_between(closed, [*lows, lows[0]], [*highs, highs[0]], color=colour, alpha=0.14, linewidth=0)
        write_key(figure, index, query.labels[condition], colour, dash, (width, height, key))
    axes.set_ylim(0, 1)
    axes.set_xticks(angles, tasks, fontsize=plot_style.NORMAL, color=plot_style.TEXT)
    axes.set_yticks([0.25, 0.5, 0.75, 1], [".25", ".5", ".75", "1"], fontsize=SMALL, color=MUTED)
    axes.grid(color=plot_style.LINE, linewidth=PIXEL)
    axes.spines["polar"].set_color(plot_style.RULE)
    return figure


def _compute_clusters_size(query: ExplorerQuery, width: int) -> tuple[int, int]:
    return width, 70 + 24 * max(1, len(surface_tables.make_clusters_table(query).rows[:MAX_ROWS]))


def _draw_clusters(query: ExplorerQuery, width: int) -> Drawing:
    rows = surface_tables.make_clusters_table(query).rows[:MAX_ROWS]
    left = 190 if width >= plot_style.WIDE else width // 3
    grid = plot_style.Grid(1, 1, width, 24 * max(1, len(rows)), left=left, right=70)
    figure, (axes,) = grid.make_panels()
    plot_style.draw_intervals(axes, [(index, row["accuracy"], *row["interval"]) for index, row in enumerate(rows)])
    for index, row in enumerate(rows):
        plot_style.write_beside(axes, (1, -index), row["clusters"], right=8)
    axes.set_yticks(
        [-index for index in range(len(rows))], [plot_style.shorten(row["condition"], left - 12) for row in rows]
    )
    axes.set_xlim(0, 1)
    axes.set_ylim(0.7 - max(1, len(rows)), 0.7)
    axes.set_xlabel("Accuracy beyond guessing", fontsize=SMALL, color=MUTED)
    plot_style.draw_gridlines(axes, "x")
    return figure


def make_map_figure(query: ExplorerQuery) -> Figure:
    return _make_figure(
        "map",
        "Heat map",
        "Accuracy beyond guessing with its 95 % interval, and the share of cut-off answers in brackets.",
        "Accuracy over two parameters",
        query,
        lambda query, width: heat_figure.compute_size(_make_panels(query, 1), width),
        lambda query, width: heat_figure.draw_heat_map(_make_panels(query, 1), width),
        surface_tables.make_map_table,
    )


def make_surface_figure(query: ExplorerQuery) -> Figure | None:
    """Return the surface; None unless both parameters vary."""
    if query.y is None or min(len(query.x.labels), len(query.y.labels)) < 2:
        return None
    return _make_figure(
        "surface",
        "Surface",
        "Blue: accuracy beyond guessing. Brown: the lower ends of the 95 % intervals. A red cross marks points "
        "where more than 2 % of the answers were cut off.",
        "Accuracy as a surface over two parameters",
        query,
        _compute_surface_size,
        _draw_surface,
        surface_tables.make_map_table,
    )


def make_curve_figure(query: ExplorerQuery) -> Figure:
    return _make_figure(
        "curves",
        "Curves",
        "Lines: accuracy beyond guessing. Bands: 95 % intervals. At most six conditions are drawn.",
        "Accuracy along one parameter",
        query,
        lambda query, width: (width, 280 + KEY_HEIGHT * len(query.ordered_conditions[:MAX_LINES])),
        _draw_curves,
        surface_tables.make_curve_table,
    )


def make_models_figure(query: ExplorerQuery) -> Figure:
    return _make_figure(
        "models",
        "Side by side",
        "The same cells for each condition, at most twelve, with 95 % intervals and the share of cut-off answers.",
        "Heat maps of the conditions",
        query,
        lambda query, width: heat_figure.compute_size(_make_panels(query), width),
        lambda query, width: heat_figure.draw_heat_map(_make_panels(query), width),
        surface_tables.make_models_table,
    )


def make_difference_figure(query: ExplorerQuery) -> Figure | None:
    """Return the difference of two conditions; None for a single condition."""
    if len(query.labels) < 2:
        return None
    return _make_figure(
        "difference",
        "Difference",
        "B − A with its 95 % interval. Cells whose interval includes 0 have no colour.",
        "Differences of two conditions",
        query,
        lambda query, width: heat_figure.compute_size([_make_difference_panel(query)], width),
        lambda query, width: heat_figure.draw_heat_map([_make_difference_panel(query)], width),
        surface_tables.make_difference_table,
    )


def make_task_figure(query: ExplorerQuery) -> Figure | None:
    """Return the web of tasks; None for fewer than three."""
    if len(query.counts.task_names) < 3:
        return None
    return _make_figure(
        "tasks",
        "Tasks",
        "A spoke for each task, from 0 in the middle to 1. Bands: 95 % intervals. At most six conditions are drawn.",
        "Accuracy by task as a web",
        query,
        _compute_spider_size,
        _draw_spider,
        surface_tables.make_tasks_table,
    )


def make_cluster_figure(query: ExplorerQuery) -> Figure:
    return _make_figure(
        "clusters",
        "Clusters",
        "Accuracy with 95 % intervals. Conditions with a common letter have intervals that all overlap.",
        "Accuracy of the conditions with intervals",
        query,
        _compute_clusters_size,
        _draw_clusters,
        surface_tables.make_clusters_table,
    )
