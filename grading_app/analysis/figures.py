"""The figures of the analysis page. Each is drawn from a table that the page shows, so both have the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grading_app.reports import plot_style
from grading_app.reports.result_table import ResultTable, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 40
ROW = 24
PER_CENT = {"share": (100, " (%)"), "signed_share": (100, " (percentage points)")}
LABELS = 190  # CSS pixels for the names of rows on a wide figure.


@dataclass(frozen=True, slots=True)
class IntervalFigure:
    """A value with its interval for each row of a table. zero: draw the line of no difference."""

    name: str
    table: str
    title: str
    label: Callable[[Row], str]
    value: str
    interval: str
    axis: str
    zero: bool = False

    def rows(self, table: ResultTable) -> list[Row]:
        """Return the rows that have a value, the first ones of many."""
        return [row for row in table.rows if row.get(self.value) is not None][:MOST_ROWS]

    def alt(self, table: ResultTable) -> str:
        return f"{self.title}: {len(self.rows(table))} rows with intervals. The table holds the numbers."

    def size(self, table: ResultTable, width: int) -> tuple[int, int]:
        return width, 26 + 44 + ROW * max(1, len(self.rows(table)))

    def draw(self, table: ResultTable, width: int) -> Figure:
        rows = self.rows(table)
        kind = next(column.kind for column in table.columns if column.name == self.value)
        scale, unit = PER_CENT.get(kind, (1, ""))
        left = LABELS if width >= plot_style.WIDE else width // 3
        grid = plot_style.Grid(1, 1, width, ROW * max(1, len(rows)), left=left)
        figure, (axis,) = grid.figure()
        places = range(len(rows) - 1, -1, -1)
        for place, row in zip(places, rows, strict=True):
            if row.get(self.interval) is not None:
                low, high = (scale * end for end in row[self.interval])
                axis.plot([low, high], [place, place], color=plot_style.DATA, linewidth=2 * plot_style.PIXEL)
            value, size = scale * row[self.value], 6 * plot_style.PIXEL
            axis.plot([value], [place], marker="o", color=plot_style.DATA, markersize=size)
        if self.zero:
            axis.axvline(0, color=plot_style.RULE, linewidth=plot_style.PIXEL, dashes=(4, 4), zorder=0)
        axis.set_yticks(list(places), [plot_style.shortened(self.label(row), left - 12) for row in rows])
        axis.set_ylim(-0.7, len(rows) - 0.3)
        axis.set_xlabel(f"{self.axis}{unit}", fontsize=plot_style.SMALL, color=plot_style.MUTED)
        plot_style.gridlines(axis, "x")
        return figure


def _of_condition(row: Row) -> str:
    category = row.get("category")
    return f"{row['condition']} · {category}" if category else str(row["condition"])


def _of_pair(row: Row) -> str:
    return f"{row['b']} − {row['a']}"


FIGURES: Sequence[IntervalFigure] = (
    IntervalFigure("means", "descriptives", "Scores by condition", _of_condition, "mean", "interval", "Mean score"),
    IntervalFigure(
        "category-means", "categories", "Scores by category", _of_condition, "mean", "interval", "Mean score"
    ),
    IntervalFigure(
        "norm-differences", "norm_differences", "Difference from the norms", _of_condition, "difference",
        "difference_ci", "Model minus norm", zero=True,
    ),
    IntervalFigure("norm-r", "norm_agreement", "Correlation with the norms", _of_condition, "r", "r_ci", "Pearson's r"),
    IntervalFigure(
        "differences", "differences", "Differences between conditions", _of_pair, "difference", "difference_ci",
        "B − A", zero=True,
    ),
    IntervalFigure(
        "variance", "variance_components", "Where the variance lies", lambda row: str(row["source"]), "share",
        "share_ci", "Share of the variance",
    ),
    IntervalFigure(
        "robustness", "robustness", "How the headline moves", lambda row: str(row["variant"]), "value", "interval",
        "Headline",
    ),
)  # fmt: skip


def figures_of(tables: Mapping[str, ResultTable]) -> list[tuple[IntervalFigure, ResultTable]]:
    """Return the figures for which there is a table with a value."""
    pairs = [(figure, tables[figure.table]) for figure in FIGURES if figure.table in tables]
    return [(figure, table) for figure, table in pairs if figure.rows(table)]
