"""Score against cost: a point for each condition, and the efficient frontier through the undominated conditions."""

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
MAX_NAMED = 12
"""With more conditions than this, only conditions on the frontier are named."""
LOG_SCALE_RATIO = 20  # If the highest cost exceeds the lowest by more than this factor, the axis is logarithmic.


def has_costs(board: Leaderboard, measure: BoardMeasure) -> bool:
    """Return True if there are two conditions to compare, and at least one has a cost."""
    rows = list_priced_rows(board, measure)
    return not measure.is_rating and len(rows) > 1 and any(row.cost_usd for row in rows)


def _make_grid(width: int) -> plot_style.Grid:
    return plot_style.Grid(1, 1, width, HEIGHT, left=56, right=28)


def compute_size(width: int) -> tuple[int, int]:
    return width, _make_grid(width).height


def write_alt_text(board: Leaderboard, measure: BoardMeasure) -> str:
    names = ", ".join(row.label for row in find_efficient_frontier(board, measure))
    return f"{measure.label} against cost per answer. On the efficient frontier: {names}. The table has the numbers."


def draw_cost_figure(board: Leaderboard, measure: BoardMeasure, width: int) -> Figure:
    figure, (axis,) = _make_grid(width).figure()
    rows, frontier = list_priced_rows(board, measure), find_efficient_frontier(board, measure)
    costs = [row.cost_per_answer or 0.0 for row in rows]
    is_logarithmic = min(costs) > 0 and max(costs) / min(costs) > LOG_SCALE_RATIO
    if is_logarithmic:
        axis.set_xscale("log")
    for row in rows:
        _draw_point(axis, row, measure, is_efficient=row in frontier)
    points = [_get_point(row, measure) for row in frontier]
    axis.plot(*zip(*points, strict=True), color=plot_style.DATA, linewidth=plot_style.PIXEL, zorder=1)
    axis.margins(x=0.12, y=0.12)
    if not is_logarithmic:
        axis.set_xlim(0, 1.3 * max(costs))
    for row in rows if len(rows) <= MAX_NAMED else frontier:
        point = _get_point(row, measure)
        is_right = axis.transAxes.inverted().transform(axis.transData.transform(point))[0] > 0.6
        style = {"ha": "right" if is_right else "left", "fontsize": plot_style.SMALL}
        name = plot_style.shorten(row.label, width / 2.4)
        plot_style.write_beside(axis, point, name, right=-8 if is_right else 8, up=9, **style)
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


def _get_point(row: BoardRow, measure: BoardMeasure) -> tuple[float, float]:
    return row.cost_per_answer or 0.0, row.scores[measure.key].mean or 0.0


def _draw_point(axis: object, row: BoardRow, measure: BoardMeasure, *, is_efficient: bool) -> None:
    score, cost = row.scores[measure.key], row.cost_per_answer or 0.0
    color = plot_style.DATA if is_efficient else plot_style.DATA_SOFT
    if score.low is not None and score.high is not None:
        axis.plot([cost, cost], [score.low, score.high], color=plot_style.DATA_SOFT, linewidth=plot_style.PIXEL)  # type: ignore[attr-defined]
    axis.plot([cost], [score.mean], marker="o", markersize=7 * plot_style.PIXEL, color=color, markeredgewidth=0)  # type: ignore[attr-defined]
