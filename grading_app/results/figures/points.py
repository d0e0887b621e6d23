"""The accuracy or mean rating at each point of an adaptive experiment, with the interval at which it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from grading_app.results.figure import Figure
from grading_app.results.figures import share_rows
from grading_app.results.figures.share_rows import RowPanel, ShareRow
from grading_app.results.frames import Frames
from grading_app.results.statistic_format import format_number, format_share
from grading_app.results.table import ResultColumn, ResultTable
from runs_app.monitoring.point_status import PointLine

MAX_ROWS = 80  # With more rows, only the table of the page is shown.


def make_figure(frames: Frames) -> Figure | None:
    """Return the figure of the points with a value; None without one, or for too many points."""
    lines = [line for line in frames.points if _get_value(line) is not None]
    if not lines or len(lines) > MAX_ROWS:
        return None
    has_several_waves = len({line.wave for line in lines}) > 1
    groups = [
        (f"{frames.labels[condition]}, {wave}" if has_several_waves else frames.labels[condition], list(group))
        for (condition, wave, _), group in groupby(lines, key=lambda line: (line.condition, line.wave, line.scale))
    ]
    lines = [line for _, of in groups for line in of]
    panels = [
        RowPanel(title, [ShareRow(one.label, _get_value(one) or 0.0, one.low, one.high) for one in of], of[0].scale)
        for title, of in groups
    ]
    are_rated = lines[0].scale is not None
    caption = f"{'Mean rating' if are_rated else 'Share of right answers'} at each point, with the interval at its "
    caption += "last decision"
    if any(line.guesses for line in lines):
        caption += ". Both are corrected for guessing: 0 % is the level of guessing, 100 % is all answers right"
    n_open = sum(line.is_open for line in lines)
    open_text = f"{n_open} of {len(lines)} points are still open." if n_open else "Every point is decided."
    texts = [
        f"{title}, {line.label}: {format_number(line.mean) if line.scale else format_share(line.accuracy)}"
        for title, of in groups
        for line in of
    ]
    return Figure(
        "points",
        "Points",
        f"{caption}. {open_text}",
        ("Mean rating" if are_rated else "Accuracy") + " by point. " + "; ".join(texts[:8]),
        lambda width: share_rows.compute_size(panels, width),
        lambda width: share_rows.draw_panels(panels, width),
        lambda: _make_table(groups, are_rated=are_rated),
        in_report=True,
    )


def _get_value(line: PointLine) -> float | None:
    return line.accuracy if line.scale is None else line.mean


def _make_table(groups: Sequence[tuple[str, Sequence[PointLine]]], *, are_rated: bool) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("point", "Point"),
        ResultColumn("status", "Status"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("n", "n", "count"),
        ResultColumn("mean", "Mean", "number"),
        ResultColumn("correct", "Correct", "share"),
        ResultColumn("accuracy", "Beyond guessing", "share"),
        ResultColumn("interval", "Interval", "interval" if are_rated else "share_interval"),
        ResultColumn("half_width", "Half-width", "number" if are_rated else "points"),
        ResultColumn("rounds", "Rounds", "count"),
    ]
    lines = [line for _, of in groups for line in of]
    left_out = {"correct", "accuracy"} if are_rated else {"items", "mean"}
    if not any(line.guesses for line in lines):
        left_out.add("accuracy")
    rows = [
        {
            "condition": title,
            "point": line.label,
            "status": line.status_label,
            "items": line.rated_items,
            "n": line.scored,
            "mean": line.mean,
            "correct": line.right,
            "accuracy": line.accuracy,
            "interval": None if line.is_below_guessing or line.low is None else (line.low, line.high),
            "half_width": line.half_width,
            "rounds": line.rounds,
        }
        for title, of in groups
        for line in of
    ]
    is_below = any(line.is_below_guessing for line in lines)
    notes = ["A point without an interval is below the level of guessing."] if is_below else []
    return ResultTable("points", "Points", [one for one in columns if one.name not in left_out], rows, notes=notes)
