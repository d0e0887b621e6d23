"""The distribution of ratings: a small histogram for each condition and dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grading_app.results import plot_style
from grading_app.results.figure import Figure, describe_counts, describe_hidden_panels
from grading_app.results.frames import Frames
from grading_app.results.statistic_format import format_number, format_share
from grading_app.results.table import ResultColumn, ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

MAX_TICKS = 11  # A scale with more points has ticks only at its ends and its middle.
MAX_ROWS = 30


@dataclass(frozen=True, slots=True)
class RatingPanel:
    condition: str
    dimension: str
    low: int
    high: int
    counts: dict[int, int]

    @property
    def n(self) -> int:
        return sum(self.counts.values())

    @property
    def mean(self) -> float:
        return sum(rating * count for rating, count in self.counts.items()) / self.n

    @property
    def shares(self) -> dict[int, float]:
        return {rating: count / self.n for rating, count in self.counts.items()}


@dataclass(frozen=True, slots=True)
class DistributionData:
    """Panels by condition, then dimension. A combination without ratings has a panel, too (n = 0)."""

    panels: list[RatingPanel]
    dimensions: int

    @property
    def visible_panels(self) -> list[RatingPanel]:
        return self.panels[: MAX_ROWS * self.dimensions]

    @property
    def tallest(self) -> float:
        return max(share for panel in self.panels if panel.n for share in panel.shares.values())


def make_figure(frames: Frames) -> Figure | None:
    if not frames.rating_counts:
        return None
    rated = [key for key in frames.dimensions if any(dimension == key for _, dimension in frames.rating_counts)]
    panels = []
    for condition, label in frames.labels.items():
        for key in rated:
            dimension, counts = frames.dimensions[key], frames.rating_counts.get((condition, key), {})
            panels.append(RatingPanel(label, dimension.title, dimension.low, dimension.high, counts))
    data = DistributionData(panels, len(rated))
    texts = [
        f"{panel.condition}, {panel.dimension}: mean {format_number(panel.mean)} of {panel.n} ratings"
        for panel in data.visible_panels[:6]
        if panel.n
    ]
    return Figure(
        "ratings",
        "Distribution of ratings",
        "Share of the ratings at each point of the scale. The triangle is the mean. Axes are the same in all panels."
        + describe_hidden_panels(panels, data.visible_panels)
        + describe_counts([panel.n for panel in panels if panel.n], "ratings per panel"),
        "Histograms of ratings. " + "; ".join(texts),
        lambda width: (width, _make_grid(data, width).height),
        lambda width: _draw(data, width),
        lambda: _make_table(panels),
        in_report=True,
    )


def _make_table(panels: list[RatingPanel]) -> ResultTable:
    """Return a row for each point of the scale that has ratings."""
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("dimension", "Dimension"),
        ResultColumn("rating", "Rating", "count"),
        ResultColumn("n", "n", "count"),
        ResultColumn("share", "Share", "share"),
    ]
    rows = [
        {"condition": panel.condition, "dimension": panel.dimension, "rating": rating, "n": n, "share": n / panel.n}
        for panel in panels
        for rating, n in sorted(panel.counts.items())
    ]
    return ResultTable("ratings", "Distribution of ratings", columns, rows)


def _make_grid(data: DistributionData, width: int) -> plot_style.Grid:
    max_columns = max(1, width // 150)
    columns = min(max_columns, data.dimensions if data.dimensions > 1 else 2, len(data.visible_panels))
    return plot_style.Grid(
        len(data.visible_panels),
        columns,
        width,
        panel_height=74,
        left=40,
        right=10,
        top=44,
        bottom=32,
        gap_x=24,
        gap_y=66,
    )


def _draw(data: DistributionData, width: int) -> Drawing:
    grid = _make_grid(data, width)
    figure, axes = grid.make_panels()
    for place, (axis, panel) in enumerate(zip(axes, data.visible_panels, strict=True)):
        tallest = data.tallest
        points = range(panel.low, panel.high + 1)
        plot_style.draw_gridlines(axis, "y")
        axis.bar(
            points,
            [panel.shares.get(point, 0) if panel.n else 0 for point in points],
            width=0.78,
            color=plot_style.DATA,
        )
        axis.set_xlim(panel.low - 0.6, panel.high + 0.6)
        axis.set_ylim(0, tallest * 1.04)
        axis.set_yticks([0, _round_share(tallest)], ["0", format_share(_round_share(tallest), 0)])
        ends_and_middle = [panel.low, (panel.low + panel.high) // 2, panel.high]
        axis.set_xticks(list(points) if len(points) <= MAX_TICKS else ends_and_middle)
        plot_style.write_head(axis, plot_style.shorten(panel.dimension, grid.panel_width), offset=22)
        plot_style.write_note(
            axis, 0, 1, plot_style.shorten(panel.condition, grid.panel_width - 66), va="bottom", offset=7
        )
        axis.tick_params(axis="x", pad=7)  # Leaves space for the triangle.
        if panel.n:
            axis.plot([panel.mean], [-0.035 * tallest], marker="^", markersize=5, color=plot_style.HUMAN, clip_on=False)
            plot_style.write_note(axis, 1, 1, f"mean {format_number(panel.mean)}", ha="right", va="bottom", offset=7)
        if place % grid.columns:
            axis.set_yticklabels([])
    return figure


def _round_share(tallest: float) -> float:
    """Return the largest round share that is not above the tallest bar."""
    return next((step for step in (0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02) if step <= tallest), tallest)
