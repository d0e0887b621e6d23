"""The plot of mean score by length of the answer, with a panel for each condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grading_app.reports import plot_style
from grading_app.reports.figures.kinds import FigureTable
from grading_app.reports.length_bias import FEW, ScoresByLength
from grading_app.reports.statistic_format import format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS = 24
TALL = 110


def make_grid(lengths: ScoresByLength, width: int) -> plot_style.Grid:
    panels = min(MOST_PANELS, len(lengths.bins))
    columns = max(1, min(3, panels, width // 200))
    return plot_style.Grid(
        panels, columns, width, panel_height=TALL, left=44, right=16, top=26, bottom=44, gap_x=56, gap_y=64
    )


def draw_length_plot(lengths: ScoresByLength, labels: dict[int, str], width: int) -> Figure:
    """Draw all panels on the same axes. A bin of fewer than FEW answers has no point."""
    grid = make_grid(lengths, width)
    figure, axes = grid.figure()
    scores = [one.score for bins in lengths.bins.values() for one in bins.values() if one.n >= FEW] or [0.0, 1.0]
    room = 0.08 * (max(scores) - min(scores)) or 0.5
    means = [one.length for bins in lengths.bins.values() for one in bins.values()]
    beside = 0.06 * (max(means) - min(means)) or 0.5
    for place, (axis, (of, bins)) in enumerate(zip(axes, lengths.bins.items(), strict=False)):
        plot_style.draw_gridlines(axis, "y")
        points = [one for _, one in sorted(bins.items()) if one.n >= FEW]
        axis.plot([one.length for one in points], [one.score for one in points], color=plot_style.DATA, marker="o",
                  markersize=5 * plot_style.PIXEL, linewidth=1.5 * plot_style.PIXEL)  # fmt: skip
        axis.set(xlim=(min(means) - beside, max(means) + beside), ylim=(min(scores) - room, max(scores) + room))
        plot_style.write_head(axis, plot_style.shorten(labels.get(of, str(of)), grid.panel_width))
        if place >= grid.panels - grid.columns:
            axis.set_xlabel("Characters", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    return figure


def make_length_table(lengths: ScoresByLength, labels: dict[int, str]) -> FigureTable:
    """Return a table with a row for each condition and bin."""
    rows = [
        (labels.get(of, str(of)), f"{low:,} to {high:,}", f"{one.n:,}", format_number(one.score))
        for of, bins in lengths.bins.items()
        for at, (low, high) in lengths.edges.items()
        if (one := bins.get(at))
    ]
    return FigureTable(("Condition", "Characters", "Answers", "Mean score"), rows, first_number=1)
