"""The dendrogram of conditions: a tree in which groups join at their distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grading_app.results import plot_style
from grading_app.results.figure import Figure
from grading_app.results.table import ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

MAX_LEAVES = 200
MAX_WIDE_LEAVES = 40
WIDE_ROW, TIGHT_ROW = 24, 15
LABEL_WIDTH = 240  # CSS pixels for the labels of conditions in a wide figure.


def make_dendrogram(table: ResultTable) -> Figure | None:
    """Return a tree of conditions; None if it is too large to read.

    The table's `data` has `labels` and `joins`: (node, node, distance) in their order. Nodes are numbered as in scipy:
    first the conditions, then the joins.
    """
    labels: list[Any] = list(table.data.get("labels", []))
    if not labels or len(labels) > MAX_LEAVES:
        return None
    joins = table.data["joins"]

    def make_grid(width: int) -> plot_style.Grid:
        row = WIDE_ROW if len(labels) <= MAX_WIDE_LEAVES else TIGHT_ROW
        return plot_style.Grid(
            1, 1, width, row * len(labels), left=LABEL_WIDTH if width >= plot_style.WIDE else width // 2
        )

    def draw(width: int) -> Drawing:
        grid = make_grid(width)
        drawing, (axis,) = grid.make_panels()
        order = order_leaves(len(labels), joins)
        positions = {leaf: (0.0, float(-at)) for at, leaf in enumerate(order)}
        for step, (first, second, distance) in enumerate(joins):
            (x, y), (other_x, other_y) = positions[first], positions[second]
            axis.plot(
                [x, distance, distance, other_x],
                [y, y, other_y, other_y],
                color=plot_style.DATA,
                linewidth=1.5 * plot_style.PIXEL,
                solid_joinstyle="miter",
            )
            positions[len(labels) + step] = (distance, (y + other_y) / 2)
        names = [plot_style.shorten(labels[leaf], grid.left - 12) for leaf in order]
        axis.set_yticks([-at for at in range(len(order))], names)
        axis.set_ylim(-len(order) + 0.4, 0.6)
        axis.set_xlim(0, 1.03 * joins[-1][2] or 1.0)
        axis.set_xlabel("Mean distance", fontsize=plot_style.SMALL, color=plot_style.MUTED)
        plot_style.draw_gridlines(axis, "x")
        return drawing

    title = "Groups of conditions with similar scores"
    first, second, nearest = joins[0]
    return Figure(
        "analysis-groups",
        title,
        "Conditions with similar scores join at the left. Two groups join at the mean distance between their cell "
        "means.",
        f"{title}: a tree of {len(labels)} conditions. {labels[first]} and {labels[second]} are the closest, "
        f"{nearest:.2f} apart. The last two groups join at {joins[-1][2]:.2f}. The table has the numbers.",
        lambda width: (width, make_grid(width).height),
        draw,
        lambda: table,
        page="experiment_analysis",
    )


def order_leaves(leaves: int, joins: list[Any]) -> list[int]:
    """Return the conditions from top to bottom, in an order without crossing branches."""
    members = {leaf: [leaf] for leaf in range(leaves)}
    for step, (first, second, _) in enumerate(joins):
        members[leaves + step] = members.pop(first) + members.pop(second)
    return [leaf for group in members.values() for leaf in group]
