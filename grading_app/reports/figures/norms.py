"""Scatter plots of model means over human means, item by item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grading_app.reports import plot_style
from grading_app.reports.figures.kinds import FigureKind, Table
from grading_app.reports.frames import Asked, Frames, NormPair
from grading_app.reports.statistic_format import coefficient, number
from grading_app.statistics.correlation import Correlation, pearson
from grading_app.statistics.known_coverage import skewed_note

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY_POINTS = 1500  # With more points they are drawn as a bitmap, to keep the file small.
MOST_PANELS = 24
FEWEST = 3  # Two points always lie on a line.
TOO_FEW = "too few items"


@dataclass(frozen=True, slots=True)
class Panel:
    condition: str
    asked: Asked
    pairs: list[NormPair]

    @property
    def correlation(self) -> Correlation | None:
        return pearson([pair.human_mean for pair in self.pairs], [pair.model_mean for pair in self.pairs])

    @property
    def r_text(self) -> str:
        found, items = self.correlation, len(self.pairs)
        if items < FEWEST:
            return f"r: {TOO_FEW}, n = {items}"
        if found is None:
            return "r undefined: no variance"
        if found.low is None:
            return f"r = {coefficient(found.r)}, n = {found.n}, {TOO_FEW} for an interval"
        return f"r = {coefficient(found.r)} [{coefficient(found.low)}, {coefficient(found.high)}], n = {found.n}"

    @property
    def is_skewed(self) -> bool:
        """True if the means of the model or of people are too skewed for Fisher's interval."""
        return self.correlation is not None and self.correlation.is_skewed

    @property
    def mean_difference(self) -> float:
        """The mean of model minus people, over items."""
        return sum(pair.model_mean - pair.human_mean for pair in self.pairs) / len(self.pairs)


@dataclass(frozen=True, slots=True)
class Comparison:
    panels: list[Panel]
    dimensions: int

    @property
    def shown(self) -> list[Panel]:
        return self.panels[:MOST_PANELS]


def frame(frames: Frames) -> Comparison | None:
    pairs: dict[tuple[int, int], list[NormPair]] = {}
    for pair in frames.norm_pairs:
        pairs.setdefault((pair.condition, pair.dimension), []).append(pair)
    panels = [
        Panel(label, asked, pairs[condition, dimension])
        for condition, label in frames.labels.items()
        for dimension, asked in frames.dimensions.items()
        if (condition, dimension) in pairs
    ]
    return Comparison(panels, len({dimension for _, dimension in pairs})) if panels else None


def _grid(shown: Comparison, width: int) -> plot_style.Grid:
    most = 3 if width >= plot_style.WIDE else 1
    if most > 2 and len(shown.shown) % most == 1:
        most -= 1  # Two rows of two look better than a single panel in the last row.
    columns = shown.dimensions if 1 < shown.dimensions <= most else min(most, len(shown.shown))
    left, right, gap = 40, 12, 30
    side = min(250, (width - left - right - (columns - 1) * gap) // columns)
    used = left + right + columns * side + (columns - 1) * gap
    return plot_style.Grid(
        len(shown.shown), columns, used, panel_height=side, left=left, right=right, top=58, gap_x=gap, gap_y=86
    )


def size(shown: Comparison, width: int) -> tuple[int, int]:
    grid = _grid(shown, width)
    return grid.width, grid.height


def draw(shown: Comparison, width: int) -> Figure:
    grid = _grid(shown, width)
    figure, axes = grid.figure()
    for place, (axis, panel) in enumerate(zip(axes, shown.shown, strict=True)):
        _draw_panel(axis, panel, grid.panel_width)
        if place % grid.columns == 0:
            axis.set_ylabel("Model mean", fontsize=plot_style.SMALL, color=plot_style.MUTED)
        if place + grid.columns >= grid.panels:
            axis.set_xlabel("Human mean", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    return figure


def _draw_panel(axis: Axes, panel: Panel, width: float) -> None:
    low, high = panel.asked.low, panel.asked.high
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
        rasterized=len(panel.pairs) > MANY_POINTS,
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
    plot_style.head(axis, plot_style.shortened(panel.asked.title, width), offset=33)
    plot_style.note(axis, 0, 1, plot_style.shortened(panel.condition, width), va="bottom", offset=19)
    plot_style.note(axis, 0, 1, panel.r_text, va="bottom", offset=5, color=plot_style.TEXT)


def table(shown: Comparison) -> Table:
    head = ("Condition", "Dimension", "Items", "r", "95 % interval", "Mean difference")
    rows = [_row(panel, panel.correlation) for panel in shown.panels]
    return Table(head, rows, first_number=2)


def _row(panel: Panel, found: Correlation | None) -> tuple[str, ...]:
    few = len(panel.pairs) < FEWEST
    low, high = (found.low, found.high) if found else (None, None)
    ends = f"{coefficient(low)} to {coefficient(high)}{' (skewed)' if panel.is_skewed else ''}"
    return (
        panel.condition,
        panel.asked.title,
        str(len(panel.pairs)),
        TOO_FEW if few else coefficient(found.r if found else None),
        ends if low is not None else TOO_FEW if few or found else number(None),
        number(panel.mean_difference),
    )


def caption(shown: Comparison) -> str:
    text = (
        "Each point is an item: the mean of its ratings by the model over the mean of people. On the dashed line both "
        "agree. Pearson's r over items with Fisher's 95 % interval; it tells of order, not of level."
    )
    if note := skewed_note(len(panel.pairs) for panel in shown.panels if panel.is_skewed):
        text += f" {note} The table marks it."
    if len(shown.shown) < len(shown.panels):
        text += f" The first {MOST_PANELS} panels are drawn; the table has all."
    return text


def alt(shown: Comparison) -> str:
    described = [f"{panel.condition}, {panel.asked.title}: {panel.r_text}" for panel in shown.shown]
    return "Scatter plots of model means over human means. " + "; ".join(described[:6])


FIGURE = FigureKind("norms", "Model and human means", frame, size, draw, table, caption, alt)
