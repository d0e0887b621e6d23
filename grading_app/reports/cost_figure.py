"""Accuracy against cost: a point for each condition, and the efficient frontier through those that none dominates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalsite.lib.text.number_format import format_money
from grading_app.reports import plot_style
from grading_app.reports.leaderboard import (
    BoardMeasure,
    BoardRow,
    Leaderboard,
    find_efficient_frontier,
    list_priced_rows,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME, TITLE = "cost", "Score against cost"
HEIGHT = 260
MOST_NAMED = 12
"""With more conditions than this, only those on the frontier are named."""
WIDE_RANGE = 20  # From this ratio of costs on, the axis is logarithmic.


def has_costs(board: Leaderboard, measure: BoardMeasure) -> bool:
    """Return whether there are two conditions to compare, and any cost."""
    rows = list_priced_rows(board, measure)
    return not measure.is_rating and len(rows) > 1 and any(row.cost_usd for row in rows)


def compute_size(width: int) -> tuple[int, int]:
    return width, HEIGHT + 26 + 44


def write_alt_text(board: Leaderboard, measure: BoardMeasure) -> str:
    names = ", ".join(row.label for row in find_efficient_frontier(board, measure))
    return f"{measure.label} against cost per answer. On the efficient frontier: {names}. The table holds the numbers."


def draw_cost_figure(board: Leaderboard, measure: BoardMeasure, width: int) -> Figure:
    grid = plot_style.Grid(1, 1, width, HEIGHT, left=56, right=28)
    figure, (axis,) = grid.figure()
    rows, frontier = list_priced_rows(board, measure), find_efficient_frontier(board, measure)
    costs = [row.cost_per_answer or 0.0 for row in rows]
    is_wide = min(costs) > 0 and max(costs) / min(costs) > WIDE_RANGE
    if is_wide:
        axis.set_xscale("log")
    for row in rows:
        _draw_point(axis, row, measure, is_efficient=row in frontier)
    places = [(row.cost_per_answer or 0.0, row.scores[measure.key].mean or 0.0) for row in frontier]
    axis.plot(*zip(*places, strict=True), color=plot_style.DATA, linewidth=plot_style.PIXEL, zorder=1)
    axis.margins(x=0.12, y=0.12)
    if not is_wide:
        axis.set_xlim(0, 1.3 * max(costs))
    for row in rows if len(rows) <= MOST_NAMED else frontier:
        place = (row.cost_per_answer or 0.0, row.scores[measure.key].mean or 0.0)
        is_right = axis.transAxes.inverted().transform(axis.transData.transform(place))[0] > 0.6
        how = {"ha": "right" if is_right else "left", "fontsize": plot_style.SMALL}
        name = plot_style.shorten(row.label, width / 2.4)
        plot_style.write_beside(axis, place, name, right=-8 if is_right else 8, up=9, **how)
    ticks = [tick for tick in axis.get_xticks() if axis.get_xlim()[0] <= tick <= axis.get_xlim()[1] and tick >= 0]
    ticks = ticks[:: -(-len(ticks) // (5 if width >= plot_style.WIDE else 3))]
    axis.set_xticks(ticks, [format_money(tick) for tick in ticks])
    axis.minorticks_off()
    if measure.is_share:
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axis.set_xlabel("Cost per answer", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    plot_style.draw_gridlines(axis, "y")
    plot_style.write_head(axis, measure.label, left=44)
    return figure


def _draw_point(axis: object, row: BoardRow, measure: BoardMeasure, *, is_efficient: bool) -> None:
    score, cost = row.scores[measure.key], row.cost_per_answer or 0.0
    color = plot_style.DATA if is_efficient else plot_style.DATA_SOFT
    if score.low is not None and score.high is not None:
        axis.plot([cost, cost], [score.low, score.high], color=plot_style.DATA_SOFT, linewidth=plot_style.PIXEL)  # type: ignore[attr-defined]
    axis.plot([cost], [score.mean], marker="o", markersize=7 * plot_style.PIXEL, color=color, markeredgewidth=0)  # type: ignore[attr-defined]
