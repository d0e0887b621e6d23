"""Scatter plots of model means over human means, item by item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grading_app.results import plot_style
from grading_app.results.figure import Figure, describe_hidden_panels
from grading_app.results.frames import Frames, NormPair, RatedDimension
from grading_app.results.statistic_format import format_coefficient
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.correlation import Correlation, pearson
from grading_app.statistics.intervals import describe_correlation_coverage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MAX_VECTOR_POINTS = 1500  # More points are drawn as a bitmap, to keep the file small.
MAX_PANELS = 24
MIN_ITEMS = 3  # Two points always lie on a line.
TOO_FEW = "too few items"


@dataclass(frozen=True, slots=True)
class NormPanel:
    condition: str
    dimension: RatedDimension
    pairs: list[NormPair]

    @property
    def correlation(self) -> Correlation | None:
        return pearson([pair.human_mean for pair in self.pairs], [pair.model_mean for pair in self.pairs])

    @property
    def r_text(self) -> str:
        correlation, items = self.correlation, len(self.pairs)
        if items < MIN_ITEMS:
            return f"r: {TOO_FEW}, n = {items}"
        if correlation is None:
            return "r undefined: no variance"
        if correlation.low is None:
            return f"r = {format_coefficient(correlation.r)}, n = {correlation.n}, no interval"
        low, high = format_coefficient(correlation.low), format_coefficient(correlation.high)
        return f"r = {format_coefficient(correlation.r)} [{low}, {high}], n = {correlation.n}"


@dataclass(frozen=True, slots=True)
class NormData:
    panels: list[NormPanel]
    dimensions: int

    @property
    def visible_panels(self) -> list[NormPanel]:
        return self.panels[:MAX_PANELS]


def list_panels(frames: Frames) -> list[NormPanel]:
    """Return a panel for each condition and dimension that shares items with the norms."""
    pairs: dict[tuple[int, int], list[NormPair]] = {}
    for pair in frames.norm_pairs:
        pairs.setdefault((pair.condition, pair.dimension), []).append(pair)
    return [
        NormPanel(label, rated_dimension, pairs[condition, dimension])
        for condition, label in frames.labels.items()
        for dimension, rated_dimension in frames.dimensions.items()
        if (condition, dimension) in pairs
    ]


def make_figure(frames: Frames) -> Figure | None:
    panels = list_panels(frames)
    if not panels:
        return None
    data = NormData(panels, len({panel.dimension for panel in panels}))
    note = describe_correlation_coverage(len(panel.pairs) for panel in panels)
    if any(panel.correlation and panel.correlation.low is None for panel in panels):
        note = f"No interval: {TOO_FEW}. {note}".strip()
    texts = [f"{panel.condition}, {panel.dimension.title}: {panel.r_text}" for panel in data.visible_panels]
    return Figure(
        "norms",
        "Model and human means",
        "Each point is an item: the mean of its ratings by the model over the mean of people. On the dashed line both "
        "agree. Pearson's r over items measures order, not level. Its 95 % interval is the wider of Fisher's and the "
        "jackknife's." + (f" {note}" if note else "") + describe_hidden_panels(panels, data.visible_panels),
        "Scatter plots of model means over human means. " + "; ".join(texts[:6]),
        lambda width: ((grid := _make_grid(data, width)).width, grid.height),
        lambda width: _draw(data, width),
        lambda: _make_table(panels),
        in_report=True,
    )


def _make_table(panels: list[NormPanel]) -> ResultTable:
    """Return a row for each point of each panel."""
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("dimension", "Dimension"),
        ResultColumn("item", "Item"),
        ResultColumn("n", "Ratings", "count"),
        ResultColumn("human_mean", "Human mean", "number"),
        ResultColumn("model_mean", "Model mean", "number"),
    ]
    rows = [
        {
            "condition": panel.condition,
            "dimension": panel.dimension.title,
            "item": pair.item_key,
            "n": pair.n,
            "human_mean": pair.human_mean,
            "model_mean": pair.model_mean,
        }
        for panel in panels
        for pair in panel.pairs
    ]
    return ResultTable("norms", "Model and human means", columns, rows)


def _make_grid(data: NormData, width: int) -> plot_style.Grid:
    max_columns = 3 if width >= plot_style.WIDE else 1
    if max_columns > 2 and len(data.visible_panels) % max_columns == 1:
        max_columns -= 1  # Two rows of two look better than a single panel in the last row.
    columns = data.dimensions if 1 < data.dimensions <= max_columns else min(max_columns, len(data.visible_panels))
    left, right, gap = 40, 12, 30
    side = min(250, (width - left - right - (columns - 1) * gap) // columns)
    grid_width = left + right + columns * side + (columns - 1) * gap
    return plot_style.Grid(
        len(data.visible_panels),
        columns,
        grid_width,
        panel_height=side,
        left=left,
        right=right,
        top=58,
        gap_x=gap,
        gap_y=86,
    )


def _draw(data: NormData, width: int) -> Drawing:
    grid = _make_grid(data, width)
    figure, axes = grid.make_panels()
    for place, (axis, panel) in enumerate(zip(axes, data.visible_panels, strict=True)):
        _draw_panel(axis, panel, grid.panel_width)
        if place % grid.columns == 0:
            axis.set_ylabel("Model mean", fontsize=plot_style.SMALL, color=plot_style.MUTED)
        if place + grid.columns >= grid.panels:
            axis.set_xlabel("Human mean", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    return figure


def _draw_panel(axis: Axes, panel: NormPanel, width: float) -> None:
    low, high = panel.dimension.low, panel.dimension.high
    axis.plot([low, high], [low, high], color=plot_style.RULE, linewidth=plot_style.PIXEL, dashes=(4, 4), zorder=1)
    axis.plot(
        [pair.human_mean for pair in panel.pairs],
        [pair.model_mean for pair in panel.pairs],
        linestyle="none",
        marker="o",
        markersize=5.5 * plot_style.PIXEL,
        color=plot_style.DATA,
        markeredgewidth=0,
        alpha=0.62,
        rasterized=len(panel.pairs) > MAX_VECTOR_POINTS,
        clip_on=False,
        zorder=2,
    )
    margin = 0.03 * (high - low)
    axis.set_xlim(low - margin, high + margin)
    axis.set_ylim(low - margin, high + margin)
    ticks = list(range(low, high + 1)) if high - low < 11 else [low, (low + high) // 2, high]
    axis.set_xticks(ticks)
    axis.set_yticks(ticks)
    axis.spines["left"].set(visible=True, color=plot_style.RULE, linewidth=plot_style.PIXEL)
    plot_style.write_head(axis, plot_style.shorten(panel.dimension.title, width), offset=33)
    plot_style.write_note(axis, 0, 1, plot_style.shorten(panel.condition, width), va="bottom", offset=19)
    plot_style.write_note(axis, 0, 1, panel.r_text, va="bottom", offset=5, color=plot_style.TEXT)
