"""Score against cost: a point for each condition, and the efficient frontier through the undominated conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from evalsite.lib.text.number_format import format_money
from grading_app.results import plot_style
from grading_app.results.figure import Figure
from grading_app.results.leaderboard import BoardRow, Leaderboard
from grading_app.results.leaderboard_tables import costs_differ
from grading_app.results.scores import Measure
from grading_app.results.table import ResultColumn, ResultTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

Box = tuple[float, float, float, float]  # Left, bottom, right, top.
HEIGHT, NARROW_HEIGHT = 210, 280  # A phone needs the height for the names.
MISSING_NOTE = " In brackets: the answers with a score, of all planned ones."
NAME_LETTER = 7.7  # CSS pixels of an average letter of a name, in the widest of the fonts.
MAX_NAMED = 12
"""With more conditions than this, only conditions on the frontier are named."""
SIDES = (("left", 9), ("right", 9), ("left", -9), ("right", -9), ("center", 16), ("center", -16),
         *((side, up) for distance in (22, 34, 46, 58, 70) for up in (distance, -distance)
           for side in ("left", "right")))  # fmt: skip
"""The places of a name: the side of the text at its point, and pixels above it. The first ones are preferred."""
LOG_SCALE_RATIO = 5  # If the highest cost exceeds the lowest by more than this factor, the axis is logarithmic.


def make_figures(board: Leaderboard) -> Iterator[Figure]:
    """Yield a figure for each measure with a cost; none where all conditions cost the same."""
    for measure in board.measures if costs_differ(board) else ():
        rows = board.list_priced_rows(measure)
        if not measure.is_rating and len(rows) > 1 and any(row.cost_usd for row in rows):
            yield make_cost_figure(board, measure)


def make_cost_figure(board: Leaderboard, measure: Measure) -> Figure:
    name = f"cost-{measure.key.replace(':', '-')}"
    title = f"Score against cost: {measure.label}"
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("cost_per_answer", "Cost per answer", "money"),
        ResultColumn("mean", measure.label, measure.mean_column),
        ResultColumn("interval", "95 % interval", measure.interval_column),
    ]
    rows = [
        {
            "condition": row.label,
            "cost_per_answer": row.cost_per_answer,
            "mean": row.scores[measure.key].mean,
            "interval": row.scores[measure.key].interval,
        }
        for row in board.list_priced_rows(measure)
    ]
    frontier = board.find_efficient_frontier(measure)
    names = ", ".join(f"{row.label}{row.scores[measure.key].mark}" for row in frontier)
    return Figure(
        name,
        title,
        "A point for each condition, with its 95 % interval. The line is the efficient frontier: no cheaper "
        "condition scores as high."
        + (MISSING_NOTE if any(row.scores[measure.key].mark for row in board.list_priced_rows(measure)) else ""),
        f"{measure.label} against cost per answer. On the efficient frontier: {names}. The table has the numbers.",
        lambda width: (width, _make_grid(width).height),
        lambda width: _draw(board, measure, width),
        lambda: ResultTable(name, title, columns, rows),
        in_report=True,
    )


def _make_grid(width: int) -> plot_style.Grid:
    height = HEIGHT if width >= plot_style.WIDE else NARROW_HEIGHT
    return plot_style.Grid(1, 1, width, height, left=56, right=28)


def _draw(board: Leaderboard, measure: Measure, width: int) -> Drawing:
    figure, (axis,) = _make_grid(width).make_panels()
    rows, frontier = board.list_priced_rows(measure), board.find_efficient_frontier(measure)
    costs = [row.cost_per_answer or 0.0 for row in rows]
    is_logarithmic = min(costs) > 0 and max(costs) / min(costs) > LOG_SCALE_RATIO
    if is_logarithmic:
        axis.set_xscale("log")
    for row in rows:
        _draw_point(axis, row, measure, is_efficient=row in frontier)
    points = [_get_point(row, measure) for row in frontier]
    axis.plot(*zip(*points, strict=True), color=plot_style.DATA, linewidth=plot_style.PIXEL, zorder=1)
    axis.margins(x=0.35 if is_logarithmic else 0.12, y=0.12)  # Names need room on both sides of the points.
    if not is_logarithmic:
        axis.set_xlim(-0.05 * max(costs), 1.3 * max(costs))
    _write_names(axis, rows if len(rows) <= MAX_NAMED else frontier, rows, points, measure, width)
    if is_logarithmic:
        from matplotlib.ticker import LogLocator

        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
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


def _get_point(row: BoardRow, measure: Measure) -> tuple[float, float]:
    return row.cost_per_answer or 0.0, row.scores[measure.key].mean or 0.0


def _write_names(
    axis: Axes,
    named_rows: Sequence[BoardRow],
    rows: Sequence[BoardRow],
    frontier: Sequence[tuple[float, float]],
    measure: Measure,
    width: int,
) -> None:
    """Write each name inside the panel, where it hides the least: other names, points and the frontier."""
    axis.autoscale_view()  # Otherwise the limits, and so the pixels, would change when the figure is rendered.

    def to_pixels(x: float, y: float) -> tuple[float, float]:
        pixels = axis.transData.transform((x, y)) / plot_style.PIXEL
        return float(pixels[0]), float(pixels[1])

    points = {row.condition: _get_point(row, measure) for row in rows}
    boxes = [(_make_box(*to_pixels(*place), 10, 10), 2) for place in points.values()]
    for row in rows:  # The intervals are vertical lines.
        score, cost = row.scores[measure.key], points[row.condition][0]
        if score.interval is not None:
            (x, bottom), (_, top) = (to_pixels(cost, end) for end in score.interval)
            boxes.append(((x - 1, bottom, x + 1, top), 1))
    line = [to_pixels(*place) for place in frontier]
    for (x0, y0), (x1, y1) in pairwise(line):
        boxes += [(_make_box(x0 + at / 30 * (x1 - x0), y0 + at / 30 * (y1 - y0), 2, 2), 1) for at in range(31)]
    left, low, right, high = (float(end) / plot_style.PIXEL for end in axis.bbox.extents)
    for row in named_rows:
        name = plot_style.shorten(row.label, width / 2.3) + row.scores[measure.key].mark
        x, y = to_pixels(*points[row.condition])
        length = len(name) * NAME_LETTER
        interval = row.scores[measure.key].interval or ()
        ends = [to_pixels(points[row.condition][0], end)[1] - y for end in interval]
        beyond = [("center", end + (12 if end > 0 else -12)) for end in ends]
        candidates = []
        for order, (side, up) in enumerate((*SIDES, *beyond)):
            start = x + 8 if side == "left" else x - 8 - length if side == "right" else x - length / 2
            inside = max(left + 2, min(start, right - length - 2))
            middle = max(low + 8, min(y + up, high - 8))
            box = (inside, middle - 8, inside + length, middle + 8)
            moved = abs(inside - start) + abs(middle - y - up)
            hidden = sum(weight for other, weight in boxes if _overlap(box, other))
            candidates.append((hidden, moved > 0, order, box))
        *_, box = min(candidates)
        boxes.append((box, 20))
        plot_style.write_beside(
            axis, points[row.condition], name, right=box[0] - x, up=(box[1] + box[3]) / 2 - y, fontsize=plot_style.SMALL
        )


def _make_box(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _overlap(first: Box, second: Box) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


def _draw_point(axis: object, row: BoardRow, measure: Measure, *, is_efficient: bool) -> None:
    score, cost = row.scores[measure.key], row.cost_per_answer or 0.0
    color = plot_style.DATA if is_efficient else plot_style.DATA_SOFT
    if score.low is not None and score.high is not None:
        axis.plot([cost, cost], [score.low, score.high], color=plot_style.DATA_SOFT, linewidth=plot_style.PIXEL)  # type: ignore[attr-defined]
    axis.plot([cost], [score.mean], marker="o", markersize=7 * plot_style.PIXEL, color=color, markeredgewidth=0)  # type: ignore[attr-defined]
