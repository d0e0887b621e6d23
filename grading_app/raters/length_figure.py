"""The figure of mean score by length of the answer, with a panel for each condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grading_app.raters.length_bias import MIN_BIN_SIZE, ScoresByLength
from grading_app.results import plot_style
from grading_app.results.figure import Figure
from grading_app.results.table import ResultColumn, ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

MAX_PANELS = 24
PANEL_HEIGHT = 110


def make_figure(name: str, grader: str, lengths: ScoresByLength, labels: dict[int, str]) -> Figure | None:
    """Return the figure of one grade condition; None without a score. labels: of the conditions."""
    if not lengths.bins:
        return None
    title = f"{grader}: score by length of the answer"
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("characters", "Characters"),
        ResultColumn("answers", "Answers", "count"),
        ResultColumn("mean_score", "Mean score", "number"),
    ]
    rows = [
        {
            "condition": labels.get(condition, str(condition)),
            "characters": f"{low:,} to {high:,}",
            "answers": length_bin.n,
            "mean_score": length_bin.score,
        }
        for condition, bins in lengths.bins.items()
        for number, (low, high) in lengths.edges.items()
        if (length_bin := bins.get(number))
    ]
    return Figure(
        name,
        title,
        "Mean score of answers in up to eight groups of similar length, the same for all conditions. Groups of fewer "
        f"than {MIN_BIN_SIZE} answers are not drawn.",
        f"Mean score by length of the answer, scored by {grader}. The table holds the numbers.",
        lambda width: (width, _make_grid(lengths, width).height),
        lambda width: _draw(lengths, labels, _make_grid(lengths, width)),
        lambda: ResultTable(name, title, columns, rows),
        page="grading_length",
    )


def _make_grid(lengths: ScoresByLength, width: int) -> plot_style.Grid:
    panels = min(MAX_PANELS, len(lengths.bins))
    columns = max(1, min(3, panels, width // 200))
    return plot_style.Grid(
        panels, columns, width, panel_height=PANEL_HEIGHT, left=44, right=16, top=26, bottom=44, gap_x=56, gap_y=64
    )


def _draw(lengths: ScoresByLength, labels: dict[int, str], grid: plot_style.Grid) -> Drawing:
    """Draw a panel for each condition, all on the same scale. Bins of fewer than MIN_BIN_SIZE answers are not drawn."""
    figure, axes = grid.make_panels()
    all_bins = [length_bin for bins in lengths.bins.values() for length_bin in bins.values()]
    scores = [length_bin.score for length_bin in all_bins if length_bin.n >= MIN_BIN_SIZE] or [0.0, 1.0]
    margin_y = 0.08 * (max(scores) - min(scores)) or 0.5
    mean_lengths = [length_bin.length for length_bin in all_bins]
    margin_x = 0.06 * (max(mean_lengths) - min(mean_lengths)) or 0.5
    for index, (axis, (condition, bins)) in enumerate(zip(axes, lengths.bins.items(), strict=False)):
        plot_style.draw_gridlines(axis, "y")
        shown = [length_bin for _, length_bin in sorted(bins.items()) if length_bin.n >= MIN_BIN_SIZE]
        axis.plot(
            [length_bin.length for length_bin in shown],
            [length_bin.score for length_bin in shown],
            color=plot_style.DATA,
            marker="o",
            markersize=5 * plot_style.PIXEL,
            linewidth=1.5 * plot_style.PIXEL,
        )
        axis.set(
            xlim=(min(mean_lengths) - margin_x, max(mean_lengths) + margin_x),
            ylim=(min(scores) - margin_y, max(scores) + margin_y),
        )
        plot_style.write_head(axis, plot_style.shorten(labels.get(condition, str(condition)), 0.88 * grid.panel_width))
        if index >= grid.panels - grid.columns:
            axis.set_xlabel("Characters", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    return figure
