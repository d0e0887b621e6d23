"""The figure of residuals: the distance of each cell mean from its expected score, with far residuals labelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grading_app.results import plot_style
from grading_app.results.figure import Figure
from grading_app.results.table import ResultTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

HEIGHT = 210
MAX_Z = 3.5
"""The modified z beyond which a residual is far (Iglewicz and Hoaglin 1993)."""
MAX_LABELS, LABEL_WIDTH, LABEL_HEIGHT = 8, 110, 15  # The size of a label is in CSS pixels.


def make_residual_figure(table: ResultTable) -> Figure | None:
    """Return residuals over expected scores. The table's `data` has `residuals`, a mapping of:

    near, far: pairs of expected score and residual. cells, far_cells: their numbers, drawn or not. limits: the
    residuals beyond which a cell is far; None if they differ by cell.
    """
    if "residuals" not in table.data or not table.rows:
        return None
    residuals, first = table.data["residuals"], table.rows[0]

    def make_grid(width: int) -> plot_style.Grid:
        return plot_style.Grid(1, 1, width, HEIGHT, left=52)

    def draw(width: int) -> Drawing:
        grid = make_grid(width)
        drawing, (axis,) = grid.make_panels()
        marks = (("near", "o", 4, plot_style.DATA_SOFT), ("far", "D", 5, plot_style.HUMAN))
        for name, marker, size, color in marks:
            x, y = zip(*residuals[name], strict=True) if residuals[name] else ((), ())
            axis.plot(
                x, y, color=color, linestyle="none", marker=marker, markersize=size * plot_style.PIXEL, alpha=0.85,
                markeredgewidth=0, clip_on=False,
            )  # fmt: skip
        axis.axhline(0, color=plot_style.RULE, linewidth=plot_style.PIXEL, zorder=0)
        for limit in residuals["limits"] or []:
            axis.axhline(limit, color=plot_style.RULE, linewidth=plot_style.PIXEL, dashes=(4, 4), zorder=0)
        axis.margins(x=0.04, y=0.08)
        axis.set_xlabel("Expected score", fontsize=plot_style.SMALL, color=plot_style.MUTED)
        axis.set_ylabel("Residual", fontsize=plot_style.SMALL, color=plot_style.MUTED)
        plot_style.draw_gridlines(axis, "y")
        _write_names(axis, table, (grid.panel_width, HEIGHT))
        return drawing

    return Figure(
        "analysis-residuals",
        "Residuals",
        "Each point is the mean score of an item in a condition. Diamonds are far: their modified z is beyond 3.5. "
        "Dashed lines: this limit. The furthest items are labelled if there is space.",
        f"Residuals of {residuals['cells']} cell means over expected scores; {residuals['far_cells']} are far. "
        f"The furthest is {first['item']} in {first['condition']}: {first['residual']:+.2f}. "
        "The table has the numbers.",
        lambda width: (width, make_grid(width).height),
        draw,
        lambda: table,
        page="experiment_analysis",
    )


def _write_names(axis: Axes, table: ResultTable, size: tuple[float, float]) -> None:
    """Label the first item of the table and the far items if there is space. size: of the panel, in CSS pixels."""
    (left, right), (low, high) = axis.get_xlim(), axis.get_ylim()
    label_positions: list[tuple[float, float]] = []
    far = [row for row in table.rows[1:] if row.get("z") is not None and abs(row["z"]) > MAX_Z]
    for row in [*table.rows[:1], *far]:
        x = (row["expected"] - left) / (right - left) * size[0]
        y = (row["residual"] - low) / (high - low) * size[1]
        is_free = all(abs(x - a) > LABEL_WIDTH or abs(y - b) > LABEL_HEIGHT for a, b in label_positions)
        if not is_free or len(label_positions) == MAX_LABELS:
            continue
        label_positions.append((x, y))
        at_right = x > size[0] - LABEL_WIDTH
        plot_style.write_beside(
            axis,
            (row["expected"], row["residual"]),
            plot_style.shorten(str(row["item"]), LABEL_WIDTH - 10),
            right=-7 if at_right else 7,
            ha="right" if at_right else "left",
            fontsize=plot_style.SMALL,
        )
