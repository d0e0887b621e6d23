"""The plots of two raters: Bland and Altman's plot of differences, and the confusion matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grading_app.results import plot_style
from grading_app.results.figures.kinds import FigureTable
from grading_app.results.statistic_format import format_interval, format_number
from grading_app.statistics.known_coverage import describe_coverage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from grading_app.statistics.bland_altman import LimitsOfAgreement
    from grading_app.statistics.kappas import ConfusionMatrix

MAX_BUBBLE = 26  # CSS pixels across
MAX_VECTOR_POINTS = 1500


@dataclass(frozen=True)
class RaterPlot:
    """One figure of the agreement page, with its size, its table and its texts."""

    name: str
    title: str
    size: tuple[int, int]
    draw: Callable[[], Figure]
    table: FigureTable
    caption: str
    alt: str


def plot_differences(limits: LimitsOfAgreement, judge: str, width: int) -> RaterPlot:
    """Return the plot of judge minus people over the mean of both, with the limits of agreement."""
    grid = _make_plain_grid(width, 240)
    rows = [
        ("Upper limit", format_number(limits.high.estimate), format_interval(limits.high.low, limits.high.high)),
        ("Mean difference", format_number(limits.mean), ""),
        ("Lower limit", format_number(limits.low.estimate), format_interval(limits.low.low, limits.low.high)),
    ]
    n, note = sum(limits.times), describe_coverage(limits.low.formula, limits.low.clusters)
    return RaterPlot(
        "differences",
        f"{judge} minus people",
        (grid.width, grid.height),
        lambda: _draw_differences(limits, grid),
        FigureTable(("", "Value", "95 % interval"), rows, first_number=1),
        f"Each point is one of {n:,} units, or several if they coincide (larger points): the judge's rating minus the "
        "mean of the people, over the mean of both. About 95 % of the differences lie between the dashed lines: mean "
        "∓ 1.96 SD (Bland & Altman 1986). The limits are a range of differences, not an interval of their mean."
        + (f" The interval of a limit {note}." if note and limits.low.low is not None else ""),
        f"Differences between {judge} and people over {n} units: mean {format_number(limits.mean)}, limits "
        f"{format_number(limits.low.estimate)} and {format_number(limits.high.estimate)}.",
    )


def plot_confusion(
    matrix: ConfusionMatrix, names: tuple[str, str], width: int, value_labels: Mapping[float, str] | None = None
) -> RaterPlot:
    """Return the plot of the confusion matrix, with the first rater in rows and the second in columns.

    value_labels: the names of categories that have names.
    """
    grid = _make_square_grid(len(matrix.categories), width)
    categories = [format_category(category, value_labels or {}) for category in matrix.categories]
    rows = [(name, *map(str, row)) for name, row in zip(categories, matrix.counts, strict=True)]
    share = 100 * matrix.agreed / matrix.units if matrix.units else 0
    return RaterPlot(
        "confusion",
        "Confusion matrix",
        (grid.width, grid.height),
        lambda: _draw_confusion(matrix, categories, names, grid),
        FigureTable(("", *categories), rows, first_number=1),
        f"Rows: {names[0]}. Columns: {names[1]}. Both rated {matrix.units:,} units and agree on {matrix.agreed:,} "
        f"({share:.1f} %), on the diagonal. The shade is the share of the row.",
        f"Confusion matrix of {names[0]} and {names[1]}: they agree on {matrix.agreed} of {matrix.units} units.",
    )


def format_category(category: str | float, value_labels: Mapping[float, str]) -> str:
    return category if isinstance(category, str) else value_labels.get(category) or f"{category:g}"


def _make_plain_grid(width: int, height: int) -> plot_style.Grid:
    return plot_style.Grid(1, 1, width, panel_height=height, left=48, right=96, top=14, bottom=44)


def _make_square_grid(categories: int, width: int) -> plot_style.Grid:
    side = min(width - 96, max(232, 44 * categories))
    return plot_style.Grid(1, 1, side + 96, panel_height=side, left=84, right=12, top=34, bottom=30)


def _draw_differences(limits: LimitsOfAgreement, grid: plot_style.Grid) -> Figure:
    figure, (axis,) = grid.make_panels()
    plot_style.draw_gridlines(axis, "y")
    points: Counter[tuple[float, float]] = Counter()
    for mean, difference, times in zip(limits.means, limits.differences, limits.times, strict=True):
        points[mean, difference] += times
    max_count = max(points.values())
    sizes = [max(5.0, MAX_BUBBLE * (count / max_count) ** 0.5) if max_count > 1 else 6.0 for count in points.values()]
    axis.scatter(
        [x for x, _ in points], [y for _, y in points], s=[(size * plot_style.PIXEL) ** 2 for size in sizes],
        color=plot_style.DATA, alpha=0.5, linewidths=0, clip_on=False, zorder=2,
        rasterized=len(points) > MAX_VECTOR_POINTS,
    )  # fmt: skip
    lines = ((limits.high.estimate, "upper"), (limits.mean, "mean"), (limits.low.estimate, "lower"))
    for value, name in lines:
        if value is not None:
            _draw_level(axis, value, f"{name} {format_number(value)}", dashed=name != "mean")
    axis.set_xlabel("Mean of judge and people", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    axis.set_ylabel("Judge minus people", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    return figure


def _draw_level(axis: Axes, value: float, text: str, *, dashed: bool) -> None:
    style: dict[str, Any] = {"dashes": (4, 3)} if dashed else {}
    axis.axhline(value, color=plot_style.HUMAN, linewidth=1.25 * plot_style.PIXEL, zorder=1, **style)
    axis.annotate(
        text, (1, value), xycoords=("axes fraction", "data"), xytext=(6 * plot_style.PIXEL, 0),
        textcoords="offset points", va="center", fontsize=plot_style.SMALL, color=plot_style.TEXT,
        annotation_clip=False,
    )  # fmt: skip


def _draw_confusion(
    matrix: ConfusionMatrix, categories: list[str], names: tuple[str, str], grid: plot_style.Grid
) -> Figure:
    figure, (axis,) = grid.make_panels()
    n = len(categories)
    for at, row in enumerate(matrix.counts):
        for column, count in enumerate(row):
            _draw_cell(axis, (column, n - 1 - at), count, sum(row))
    axis.set(xlim=(0, n), ylim=(0, n))
    axis.set_xticks([at + 0.5 for at in range(n)], [plot_style.shorten(text, 84) for text in categories])
    axis.set_yticks([n - at - 0.5 for at in range(n)], [plot_style.shorten(text, 60) for text in categories])
    axis.spines["bottom"].set_visible(False)
    columns_title = plot_style.shorten(f"across: {names[1]}", grid.panel_width)
    plot_style.write_note(axis, 0, 1, columns_title, va="bottom", offset=4, color=plot_style.TEXT)
    plot_style.write_note(axis, 0, 1, plot_style.shorten(f"down: {names[0]}", grid.panel_width), va="bottom", offset=18)
    return figure


def _draw_cell(axis: Axes, corner: tuple[float, float], count: int, row_total: int) -> None:
    """Draw one cell. The shade is light enough for its number to be readable in both themes."""
    from matplotlib.patches import Rectangle

    share = count / row_total if row_total else 0
    axis.add_patch(Rectangle(corner, 0.97, 0.97, facecolor=plot_style.DATA, alpha=0.04 + 0.4 * share, linewidth=0))
    axis.text(
        corner[0] + 0.485, corner[1] + 0.485, str(count), ha="center", va="center", fontsize=plot_style.SMALL,
        color=plot_style.TEXT,
    )  # fmt: skip
