"""The figures of the analysis page. Each is drawn from a table on the page, so both have the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from grading_app.results import plot_style, statistic_format
from grading_app.results.analysis.dendrogram import Dendrogram
from grading_app.results.analysis.residual_figure import ResidualFigure
from grading_app.results.table import ResultTable, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_ROWS, MAX_COLUMNS = 40, 20
ROW_HEIGHT, TWO_LINE_HEIGHT, HEAD_HEIGHT, FOOT_HEIGHT = 24, 36, 58, 10
PER_CENT = {"share": (100, " (%)"), "signed_share": (100, " (percentage points)")}
LABEL_WIDTH = 190  # The maximum width of row labels in CSS pixels.


class TableFigure(Protocol):
    """A picture of one table. `rows` is empty if the table has nothing to draw. Sizes are CSS pixels."""

    @property
    def name(self) -> str: ...
    @property
    def table(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def caption(self) -> str: ...
    def rows(self, table: ResultTable) -> list[Any]: ...
    def alt(self, table: ResultTable) -> str: ...
    def size(self, table: ResultTable, width: int) -> tuple[int, int]: ...
    def draw(self, table: ResultTable, width: int) -> Figure: ...


@dataclass(frozen=True, slots=True)
class IntervalFigure:
    """A value with its interval for each row of a table. zero: draw a line at zero."""

    name: str
    table: str
    title: str
    label: Callable[[Row], str]
    value: str
    interval: str
    axis: str
    zero: bool = False
    caption: str = "Points with 95 % intervals."

    def rows(self, table: ResultTable) -> list[Row]:
        """Return the first MAX_ROWS rows that have a value."""
        return [row for row in table.rows if row.get(self.value) is not None][:MAX_ROWS]

    def alt(self, table: ResultTable) -> str:
        return f"{self.title}: {len(self.rows(table))} rows with intervals. The table has the numbers."

    def size(self, table: ResultTable, width: int) -> tuple[int, int]:
        labels = self._labels(table, width)
        return width, 26 + 44 + _choose_row_height(labels) * max(1, len(labels))

    def _labels(self, table: ResultTable, width: int) -> list[str]:
        return [plot_style.wrap(self.label(row), min(LABEL_WIDTH, 0.42 * width) - 14) for row in self.rows(table)]

    def draw(self, table: ResultTable, width: int) -> Figure:
        rows = self.rows(table)
        kind = next(column.kind for column in table.columns if column.name == self.value)
        scale, unit = PER_CENT.get(kind, (1, ""))
        labels = self._labels(table, width)
        height = _choose_row_height(labels) * max(1, len(rows))
        grid = plot_style.Grid(1, 1, width, height, left=plot_style.fit_labels(labels, width, LABEL_WIDTH))
        figure, (axis,) = grid.make_panels()
        positions = range(len(rows) - 1, -1, -1)
        for position, row in zip(positions, rows, strict=True):
            if row.get(self.interval) is not None:
                low, high = (scale * end for end in row[self.interval])
                axis.plot([low, high], [position, position], color=plot_style.DATA, linewidth=2 * plot_style.PIXEL)
            value, size = scale * row[self.value], 6 * plot_style.PIXEL
            axis.plot([value], [position], marker="o", color=plot_style.DATA, markersize=size)
        if self.zero:
            axis.axvline(0, color=plot_style.RULE, linewidth=plot_style.PIXEL, dashes=(4, 4), zorder=1)
        axis.set_yticks(list(positions), labels)
        axis.set_ylim(-0.7, len(rows) - 0.3)
        axis.set_xlabel(f"{self.axis}{unit}", fontsize=plot_style.SMALL, color=plot_style.MUTED)
        plot_style.draw_gridlines(axis, "x")
        return figure


def _choose_row_height(labels: Sequence[str]) -> int:
    return TWO_LINE_HEIGHT if any("\n" in label for label in labels) else ROW_HEIGHT


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The mean of each condition and category as a shade, from the lowest to the highest mean of the table."""

    name: str
    table: str
    title: str
    caption: str = "A row for each condition, a column for each category. The stronger the colour, the higher the mean."

    def rows(self, table: ResultTable) -> list[Row]:
        rows = [row for row in table.rows if row.get("mean") is not None]
        return rows if len(_list_unique(rows, "condition")) > 1 else []

    def alt(self, table: ResultTable) -> str:
        rows = self.rows(table)
        sizes = f"{len(_list_unique(rows, 'condition'))} conditions by {len(_list_unique(rows, 'category'))} categories"
        return f"{self.title}: {sizes}. The table has the numbers."

    def size(self, table: ResultTable, width: int) -> tuple[int, int]:
        return width, HEAD_HEIGHT + FOOT_HEIGHT + ROW_HEIGHT * len(
            _list_unique(self.rows(table), "condition")[:MAX_ROWS]
        )

    def draw(self, table: ResultTable, width: int) -> Figure:
        rows = self.rows(table)
        conditions = _list_unique(rows, "condition")[:MAX_ROWS]
        categories = _list_unique(rows, "category")[:MAX_COLUMNS]
        means = {(row["condition"], row["category"]): row["mean"] for row in rows}
        low, high = min(means.values()), max(means.values())
        is_share = next(column for column in table.columns if column.name == "mean").kind == "share"
        left = LABEL_WIDTH if width >= plot_style.WIDE else width // 3
        grid = plot_style.Grid(
            1, 1, width, ROW_HEIGHT * len(conditions), left=left, top=HEAD_HEIGHT, bottom=FOOT_HEIGHT
        )
        figure, (axis,) = grid.make_panels()
        cell_width = grid.panel_width / len(categories)
        for (condition, category), mean in means.items():
            if condition not in conditions or category not in categories:
                continue
            x, y = categories.index(category), -conditions.index(condition)
            shade = 0.08 + 0.92 * ((mean - low) / (high - low) if high > low else 0.0)
            axis.bar([x], [0.94], width=0.96, bottom=y - 0.47, color=plot_style.DATA, alpha=shade, linewidth=0)
            if cell_width >= 34:
                text = f"{100 * mean:.0f} %" if is_share else statistic_format.format_number(mean, 1)
                text_color = plot_style.SURFACE if shade > 0.55 else plot_style.TEXT
                axis.text(x, y, text, ha="center", va="center", fontsize=plot_style.SMALL, color=text_color)
        axis.set_xlim(-0.5, len(categories) - 0.5)
        axis.set_ylim(-len(conditions) + 0.5, 0.5)
        names = [plot_style.shorten(str(name), left - 12) for name in conditions]
        axis.set_yticks([-at for at in range(len(conditions))], names)
        axis.xaxis.tick_top()
        column_names = [plot_style.shorten(str(name), max(cell_width, 60)) for name in categories]
        axis.set_xticks(
            range(len(categories)),
            column_names,
            rotation=0 if cell_width >= 60 else 35,
            ha="center" if cell_width >= 60 else "left",
        )
        axis.spines["bottom"].set_visible(False)
        return figure


@dataclass(frozen=True, slots=True)
class RegressionFigure:
    """Ratings over norms, item by item: the least-squares line with its band, and Deming's line, dashed.

    The table's `data` has the panels: points, lines and the ends of the band.
    """

    name: str
    table: str
    title: str
    caption: str = (
        "Each point is an item. Solid line: model = a + b × human by least squares, with its 95 % confidence band. "
        "Dashed line: Deming's regression. Dotted line: agreement."
    )

    def rows(self, table: ResultTable) -> list[Any]:
        return list(table.data.get("panels", []))

    def alt(self, table: ResultTable) -> str:
        labels = ", ".join(str(panel["label"]) for panel in self.rows(table))
        return f"{self.title} of {labels}. The table has the numbers."

    def _grid(self, table: ResultTable, width: int) -> plot_style.Grid:
        panels = len(self.rows(table))
        columns = min(panels, 2 if width >= plot_style.WIDE else 1)
        side = min(240, (width - 52 - (columns - 1) * 30) // columns)
        grid_width = 52 + columns * side + (columns - 1) * 30
        return plot_style.Grid(panels, columns, grid_width, panel_height=side, left=40, top=30, gap_x=30, gap_y=58)

    def size(self, table: ResultTable, width: int) -> tuple[int, int]:
        grid = self._grid(table, width)
        return grid.width, grid.height

    def draw(self, table: ResultTable, width: int) -> Figure:
        grid = self._grid(table, width)
        figure, axes = grid.make_panels()
        for number, (axis, panel) in enumerate(zip(axes, self.rows(table), strict=True)):
            _draw_regression(axis, panel)
            plot_style.write_head(axis, plot_style.shorten(panel["label"], grid.panel_width))
            if number % grid.columns == 0:
                axis.set_ylabel("Model mean", fontsize=plot_style.SMALL, color=plot_style.MUTED)
            if number + grid.columns >= grid.panels:
                axis.set_xlabel("Human mean", fontsize=plot_style.SMALL, color=plot_style.MUTED)
        return figure


def _draw_regression(axis: Axes, panel: Row) -> None:
    points: dict[str, Any] = {"linestyle": "none", "marker": "o", "markeredgewidth": 0, "alpha": 0.8}
    x = panel["line_x"]
    is_rasterized = len(panel["x"]) > 500
    axis.plot(
        panel["x"],
        panel["y"],
        color=plot_style.DATA_SOFT,
        markersize=5 * plot_style.PIXEL,
        rasterized=is_rasterized,
        **points,
    )
    ends = [panel["low"], panel["high"]]
    axis.plot(ends, ends, color=plot_style.RULE, linewidth=plot_style.PIXEL, dashes=(1, 3), zorder=1)
    axis.fill_between(x, panel["band_low"], panel["band_high"], color=plot_style.DATA, alpha=0.2, linewidth=0)
    axis.plot(x, panel["line"], color=plot_style.DATA, linewidth=2 * plot_style.PIXEL)
    if panel.get("deming"):
        axis.plot(x, panel["deming"], color=plot_style.HUMAN, linewidth=1.5 * plot_style.PIXEL, dashes=(5, 3))
    margin = 0.03 * (panel["high"] - panel["low"])
    axis.set_xlim(panel["low"] - margin, panel["high"] + margin)
    axis.set_ylim(panel["low"] - margin, panel["high"] + margin)
    axis.spines["left"].set(visible=True, color=plot_style.RULE, linewidth=plot_style.PIXEL)


def _list_unique(rows: Sequence[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def _label_condition(row: Row) -> str:
    category = row.get("category")
    return f"{row['condition']} · {category}" if category else str(row["condition"])


def _label_pair(row: Row) -> str:
    return f"{row['b']} − {row['a']}"


FIGURES: Sequence[TableFigure] = (
    IntervalFigure("means", "descriptives", "Scores by condition", _label_condition, "mean", "interval", "Mean score"),
    IntervalFigure(
        "category-means", "categories", "Scores by category", _label_condition, "mean", "interval", "Mean score"
    ),
    HeatMap("category-map", "categories", "Condition by category"),
    IntervalFigure(
        "norm-differences", "norm_differences", "Difference from the norms", _label_condition, "difference",
        "difference_ci", "Model minus norm", zero=True,
    ),
    RegressionFigure("norm-regression", "norm_regression", "Regression on the norms"),
    IntervalFigure(
        "norm-r", "norm_agreement", "Correlation with the norms", _label_condition, "r", "r_ci", "Pearson's r"
    ),
    IntervalFigure(
        "differences", "differences", "Differences between conditions", _label_pair, "difference", "difference_ci",
        "B − A", zero=True,
    ),
    IntervalFigure(
        "marginal-means", "marginal_means", "Marginal means of the factors",
        lambda row: f"{row['factor']}: {row['level']}", "mean", "interval", "Mean over items and the other factors",
    ),
    IntervalFigure(
        "category-differences", "category_differences", "Differences by category",
        lambda row: f"{row['category']}: {row['condition']}", "difference", "difference_ci", "Difference", zero=True,
    ),
    IntervalFigure(
        "variance", "variance_components", "Where the variance lies", lambda row: str(row["source"]), "share",
        "share_ci", "Share of the variance",
    ),
    ResidualFigure("residuals", "outliers", "Residuals"),
    IntervalFigure(
        "robustness", "robustness", "Headline under other choices", lambda row: str(row["variant"]), "value",
        "interval", "Headline",
    ),
    Dendrogram("groups", "groups", "Groups of conditions with similar scores"),
)  # fmt: skip


def select_figures(tables: Mapping[str, ResultTable]) -> list[tuple[TableFigure, ResultTable]]:
    """Return the figures that have a table with values."""
    pairs = [(figure, tables[figure.table]) for figure in FIGURES if figure.table in tables]
    return [(figure, table) for figure, table in pairs if figure.rows(table)]
