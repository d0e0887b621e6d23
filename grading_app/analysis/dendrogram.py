"""The figure of the groups of conditions: a tree whose joins lie at the distance of the groups that they join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grading_app.reports import plot_style
from grading_app.reports.result_table import ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LEAVES = 200
FEW_LEAVES = 40
WIDE_ROW, TIGHT_ROW = 24, 15
LABELS = 240  # CSS pixels for the names of conditions on a wide figure.


@dataclass(frozen=True, slots=True)
class Dendrogram:
    """A tree of conditions. The table's `data` holds `labels` and `joins`: (one, other, distance) in their order.

    The joins number the nodes as scipy does: conditions first, then each join.
    """

    name: str
    table: str
    title: str
    caption: str = (
        "Conditions that score alike join at the left. The place of a join is the mean distance between the cell means "
        "of its two groups."
    )

    def rows(self, table: ResultTable) -> list[Any]:
        """Return the names of the conditions; none for a tree that is too large to read."""
        labels = list(table.data.get("labels", []))
        return labels if len(labels) <= MOST_LEAVES else []

    def alt(self, table: ResultTable) -> str:
        labels, joins = self.rows(table), table.data["joins"]
        one, other, nearest = joins[0]
        return (
            f"{self.title}: a tree of {len(labels)} conditions. {labels[one]} and {labels[other]} are the nearest, "
            f"{nearest:.2f} apart; the last two groups join at {joins[-1][2]:.2f}. The table holds the numbers."
        )

    def _grid(self, table: ResultTable, width: int) -> plot_style.Grid:
        leaves = len(self.rows(table))
        row = WIDE_ROW if leaves <= FEW_LEAVES else TIGHT_ROW
        left = LABELS if width >= plot_style.WIDE else width // 2
        return plot_style.Grid(1, 1, width, row * leaves, left=left)

    def size(self, table: ResultTable, width: int) -> tuple[int, int]:
        return width, self._grid(table, width).height

    def draw(self, table: ResultTable, width: int) -> Figure:
        labels, joins = self.rows(table), table.data["joins"]
        grid = self._grid(table, width)
        figure, (axis,) = grid.figure()
        order = order_leaves(len(labels), joins)
        places = {leaf: (0.0, float(-at)) for at, leaf in enumerate(order)}
        for step, (one, other, distance) in enumerate(joins):
            (x, y), (other_x, other_y) = places[one], places[other]
            axis.plot(
                [x, distance, distance, other_x],
                [y, y, other_y, other_y],
                color=plot_style.DATA,
                linewidth=1.5 * plot_style.PIXEL,
                solid_joinstyle="miter",
            )
            places[len(labels) + step] = (distance, (y + other_y) / 2)
        names = [plot_style.shorten(labels[leaf], grid.left - 12) for leaf in order]
        axis.set_yticks([-at for at in range(len(order))], names)
        axis.set_ylim(-len(order) + 0.4, 0.6)
        axis.set_xlim(0, 1.03 * joins[-1][2] or 1.0)
        axis.set_xlabel("Mean distance", fontsize=plot_style.SMALL, color=plot_style.MUTED)
        plot_style.draw_gridlines(axis, "x")
        return figure


def order_leaves(leaves: int, joins: list[Any]) -> list[int]:
    """Return the conditions from the top down, in an order in which no two branches cross."""
    members = {leaf: [leaf] for leaf in range(leaves)}
    for step, (one, other, _) in enumerate(joins):
        members[leaves + step] = members.pop(one) + members.pop(other)
    return [leaf for group in members.values() for leaf in group]
