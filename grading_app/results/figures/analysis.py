"""The figures of the analysis page, with residuals and the dendrogram of conditions, in which groups join.

Each figure is drawn from a table on the page, so both have the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from grading_app.results import plot_style, statistic_format
from grading_app.results.figure import Figure, describe_counts
from grading_app.results.table import ResultTable, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MAX_LEAVES = 200
MAX_WIDE_LEAVES = 40
WIDE_ROW, TIGHT_ROW = 24, 15
DENDROGRAM_LABEL_WIDTH = 240  # CSS pixels for the labels of conditions in a wide figure.
MAX_ROWS, MAX_COLUMNS = 40, 20
ROW_HEIGHT, TWO_LINE_HEIGHT, HEAD_HEIGHT, FOOT_HEIGHT = 24, 36, 58, 10
PER_CENT = {"share": (100, " (%)"), "signed_share": (100, " (percentage points)")}
LABEL_WIDTH = 190  # The maximum width of row labels in CSS pixels.
PAGE = "experiment_analysis"
RESIDUALS_HEIGHT = 210
MAX_Z = 3.5
"""The modified z beyond which a residual is far (Iglewicz and Hoaglin 1993)."""
MAX_NAMES, NAME_WIDTH, NAME_HEIGHT = 8, 110, 15  # Of far residuals. The size is in CSS pixels.


def make_residual_figure(table: ResultTable) -> Figure | None:
    """Return residuals over expected scores. The table's `data` has `residuals`, a mapping of:

    near, far: pairs of expected score and residual. cells, far_cells: their numbers, drawn or not. limits: the
    residuals beyond which a cell is far; None if they differ by cell.
    """
    if "residuals" not in table.data or not table.rows:
        return None
    residuals, first = table.data["residuals"], table.rows[0]

    def make_grid(width: int) -> plot_style.Grid:
        return plot_style.Grid(1, 1, width, RESIDUALS_HEIGHT, left=52)

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
        _write_names(axis, table, (grid.panel_width, RESIDUALS_HEIGHT))
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
        is_free = all(abs(x - a) > NAME_WIDTH or abs(y - b) > NAME_HEIGHT for a, b in label_positions)
        if not is_free or len(label_positions) == MAX_NAMES:
            continue
        label_positions.append((x, y))
        at_right = x > size[0] - NAME_WIDTH
        plot_style.write_beside(
            axis,
            (row["expected"], row["residual"]),
            plot_style.shorten(str(row["item"]), NAME_WIDTH - 10),
            right=-7 if at_right else 7,
            ha="right" if at_right else "left",
            fontsize=plot_style.SMALL,
        )


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
            1, 1, width, row * len(labels), left=DENDROGRAM_LABEL_WIDTH if width >= plot_style.WIDE else width // 2
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


if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def make_figures(tables: Mapping[str, ResultTable], measure: str = "") -> list[Figure]:
    """Return the figures of those tables that have values to draw.

    measure: the label of the measure, for readers who see the figure without its page. The title and the alternative
    text then begin with it, and the caption has the formula.
    """
    pairs = [(figure, tables[name]) for name, make in FIGURES if name in tables and (figure := make(tables[name]))]
    if not measure:
        return [figure for figure, _ in pairs]
    return [
        replace(
            figure,
            title=prepend_measure(figure.title, measure),
            caption=" ".join(filter(None, (figure.caption, table.formula))),
            alt=f"{measure}: {figure.alt}",
        )
        for figure, table in pairs
    ]


def prepend_measure(title: str, measure: str) -> str:
    return f"{measure}: {title[:1].lower()}{title[1:]}"


def _draw_intervals_of(
    name: str,
    title: str,
    label: Callable[[Row], str],
    value: str,
    interval: str,
    axis: str,
    *,
    zero: bool = False,
) -> Callable[[ResultTable], Figure | None]:
    """Return a maker of a figure with a value and its interval for each row of a table.

    value, interval: the names of their columns. zero: draw a line at zero.
    """

    def make(table: ResultTable) -> Figure | None:
        drawable = [row for row in table.rows if row.get(value) is not None]
        rows = drawable[:MAX_ROWS]
        if not rows:
            return None
        counts = {row["items"] for row in rows if row.get("items")}
        extent = describe_counts(sorted(counts), "items") if counts else ""
        if len(drawable) > len(rows):
            extent += f" The first {len(rows)} of {len(drawable)} rows."

        def lay_out(width: int) -> tuple[plot_style.Grid, list[str]]:
            labels = [plot_style.wrap(label(row), min(LABEL_WIDTH, 0.42 * width) - 14) for row in rows]
            row_height = TWO_LINE_HEIGHT if any("\n" in text for text in labels) else ROW_HEIGHT
            left = plot_style.fit_labels(labels, width, LABEL_WIDTH)
            return plot_style.Grid(1, 1, width, row_height * len(labels), left=left), labels

        def draw(width: int) -> Drawing:
            kind = next(column.kind for column in table.columns if column.name == value)
            scale, unit = PER_CENT.get(kind, (1, ""))
            grid, labels = lay_out(width)
            drawing, (axes,) = grid.make_panels()
            positions = range(len(rows) - 1, -1, -1)
            for position, row in zip(positions, rows, strict=True):
                if row.get(interval) is not None:
                    low, high = (scale * end for end in row[interval])
                    axes.plot([low, high], [position, position], color=plot_style.DATA, linewidth=2 * plot_style.PIXEL)
                size = 6 * plot_style.PIXEL
                axes.plot([scale * row[value]], [position], marker="o", color=plot_style.DATA, markersize=size)
            if zero:
                axes.axvline(0, color=plot_style.RULE, linewidth=plot_style.PIXEL, dashes=(4, 4), zorder=1)
            axes.set_yticks(list(positions), labels)
            axes.set_ylim(-0.5, len(rows) - 0.5)
            axes.set_xlabel(f"{axis}{unit}", fontsize=plot_style.SMALL, color=plot_style.MUTED)
            plot_style.draw_gridlines(axes, "x")
            return drawing

        return Figure(
            f"analysis-{name}",
            title,
            f"Points with 95 % intervals.{extent}",
            f"{title}: {len(rows)} rows with intervals. The table has the numbers.",
            lambda width: (width, lay_out(width)[0].height),
            draw,
            lambda: table,
            page=PAGE,
        )

    return make


def _make_category_map(table: ResultTable) -> Figure | None:
    """Return the mean of each condition and category as a shade, from the lowest to the highest mean of the table."""
    rows = [row for row in table.rows if row.get("mean") is not None]
    all_conditions, all_categories = _list_unique(rows, "condition"), _list_unique(rows, "category")
    if len(all_conditions) < 2:
        return None
    conditions, categories = all_conditions[:MAX_ROWS], all_categories[:MAX_COLUMNS]

    def make_grid(width: int) -> plot_style.Grid:
        left = LABEL_WIDTH if width >= plot_style.WIDE else width // 3
        height = ROW_HEIGHT * len(conditions)
        return plot_style.Grid(1, 1, width, height, left=left, top=HEAD_HEIGHT, bottom=FOOT_HEIGHT)

    def draw(width: int) -> Drawing:
        means = {(row["condition"], row["category"]): row["mean"] for row in rows}
        low, high = min(means.values()), max(means.values())
        is_share = next(column for column in table.columns if column.name == "mean").kind == "share"
        grid = make_grid(width)
        drawing, (axis,) = grid.make_panels()
        cell_width = grid.panel_width / len(categories)
        for (condition, category), mean in means.items():
            if condition not in conditions or category not in categories:
                continue
            x, y = categories.index(category), -conditions.index(condition)
            # A text on a stronger colour would be hard to read in one of the themes.
            shade = 0.05 + 0.4 * ((mean - low) / (high - low) if high > low else 0.0)
            axis.bar([x], [0.94], width=0.96, bottom=y - 0.47, color=plot_style.DATA, alpha=shade, linewidth=0)
            if cell_width >= 34:
                text = f"{100 * mean:.0f} %" if is_share else statistic_format.format_number(mean, 1)
                axis.text(x, y, text, ha="center", va="center", fontsize=plot_style.SMALL, color=plot_style.TEXT)
        axis.set_xlim(-0.5, len(categories) - 0.5)
        axis.set_ylim(-len(conditions) + 0.5, 0.5)
        names = [plot_style.shorten(str(name), grid.left - 12) for name in conditions]
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
        return drawing

    title = "Condition by category"
    return Figure(
        "analysis-category-map",
        title,
        "A row for each condition, a column for each category. The stronger the colour, the higher the mean.",
        f"{title}: {len(all_conditions)} conditions by {len(all_categories)} categories. The table has the numbers.",
        lambda width: (width, make_grid(width).height),
        draw,
        lambda: table,
        page=PAGE,
    )


def _make_regression_figure(table: ResultTable) -> Figure | None:
    """Return ratings over norms, item by item: the least-squares line with its band, and Deming's line, dashed.

    The table's `data` has the panels: points, lines and the ends of the band.
    """
    panels: list[Any] = list(table.data.get("panels", []))
    if not panels:
        return None

    def make_grid(width: int) -> plot_style.Grid:
        columns = min(len(panels), 2 if width >= plot_style.WIDE else 1)
        side = min(240, (width - 52 - (columns - 1) * 30) // columns)
        grid_width = 52 + columns * side + (columns - 1) * 30
        return plot_style.Grid(len(panels), columns, grid_width, panel_height=side, left=40, top=30, gap_x=30, gap_y=58)

    def draw(width: int) -> Drawing:
        grid = make_grid(width)
        drawing, axes = grid.make_panels()
        for number, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
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
            plot_style.write_head(axis, plot_style.shorten(panel["label"], grid.panel_width))
            if number % grid.columns == 0:
                axis.set_ylabel("Model mean", fontsize=plot_style.SMALL, color=plot_style.MUTED)
            if number + grid.columns >= grid.panels:
                axis.set_xlabel("Human mean", fontsize=plot_style.SMALL, color=plot_style.MUTED)
        return drawing

    title = "Regression on the norms"
    return Figure(
        "analysis-norm-regression",
        title,
        "Each point is an item. Solid line: model = a + b × human by least squares, with its 95 % confidence band. "
        "Dashed line: Deming's regression. Dotted line: agreement.",
        f"{title} of {', '.join(str(panel['label']) for panel in panels)}. The table has the numbers.",
        lambda width: ((grid := make_grid(width)).width, grid.height),
        draw,
        lambda: table,
        page=PAGE,
    )


def _list_unique(rows: Sequence[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def _label_condition(row: Row) -> str:
    category = row.get("category")
    return f"{row['condition']} · {category}" if category else str(row["condition"])


FIGURES: Sequence[tuple[str, Callable[[ResultTable], Figure | None]]] = (
    ("descriptives", _draw_intervals_of(
        "means", "Scores by condition", _label_condition, "mean", "interval", "Mean score")),
    ("categories", _draw_intervals_of(
        "category-means", "Scores by category", _label_condition, "mean", "interval", "Mean score")),
    ("categories", _make_category_map),
    ("norm_differences", _draw_intervals_of(
        "norm-differences", "Difference from the norms", _label_condition, "difference", "difference_ci",
        "Model minus norm", zero=True)),
    ("norm_regression", _make_regression_figure),
    ("norm_agreement", _draw_intervals_of(
        "norm-r", "Correlation with the norms", _label_condition, "r", "r_ci", "Pearson's r")),
    ("differences", _draw_intervals_of(
        "differences", "Differences between conditions", lambda row: f"{row['b']} − {row['a']}", "difference",
        "difference_ci", "B − A", zero=True)),
    ("marginal_means", _draw_intervals_of(
        "marginal-means", "Marginal means of the factors", lambda row: f"{row['factor']}: {row['level']}", "mean",
        "interval", "Mean over items and the other factors")),
    ("category_differences", _draw_intervals_of(
        "category-differences", "Differences by category", lambda row: f"{row['category']}: {row['condition']}",
        "difference", "difference_ci", "Difference", zero=True)),
    ("variance_components", _draw_intervals_of(
        "variance", "Where the variance lies", lambda row: str(row["source"]), "share", "share_ci",
        "Share of the variance")),
    ("outliers", make_residual_figure),
    ("robustness", _draw_intervals_of(
        "robustness", "Headline under other choices", lambda row: str(row["variant"]), "value", "interval",
        "Headline")),
    ("groups", make_dendrogram),
)  # fmt: skip
"""The names of the tables, and the makers of their figures, in the order of the page."""
