"""The accuracy or mean rating at each point of an adaptive experiment, with the interval at which it stopped."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from grading_app.results.figures import share_rows
from grading_app.results.figures.kinds import FigureKind, FigureTable
from grading_app.results.figures.share_rows import RowPanel, ShareRow
from grading_app.results.frames import Frames
from grading_app.results.statistic_format import (
    format_interval,
    format_number,
    format_points,
    format_share,
    format_share_interval,
)
from runs_app.monitoring.point_status import PointLine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_ROWS = 80  # With more rows, only the table is shown.


@dataclass(frozen=True, slots=True)
class PointData:
    """The points with an accuracy or a mean, grouped by condition, wave and scale."""

    groups: list[tuple[str, list[PointLine]]]

    @property
    def are_rated(self) -> bool:
        return self.lines[0].scale is not None

    @property
    def lines(self) -> list[PointLine]:
        return [line for _, lines in self.groups for line in lines]


def select_data(frames: Frames) -> PointData | None:
    lines = [line for line in frames.points if _get_value(line) is not None]
    if not lines or len(lines) > MAX_ROWS:
        return None
    has_several_waves = len({line.wave for line in lines}) > 1
    groups = [
        (f"{frames.labels[condition]}, {wave}" if has_several_waves else frames.labels[condition], list(group))
        for (condition, wave, _), group in groupby(lines, key=lambda line: (line.condition, line.wave, line.scale))
    ]
    return PointData(groups)


def _get_value(line: PointLine) -> float | None:
    return line.accuracy if line.scale is None else line.mean


def compute_size(data: PointData, width: int) -> tuple[int, int]:
    return share_rows.compute_size(_make_panels(data), width)


def draw_figure(data: PointData, width: int) -> Figure:
    return share_rows.draw_panels(_make_panels(data), width)


def _make_panels(data: PointData) -> list[RowPanel]:
    return [
        RowPanel(
            title,
            [ShareRow(line.label, _get_value(line) or 0.0, line.low, line.high) for line in lines],
            lines[0].scale,
        )
        for title, lines in data.groups
    ]


def make_table(data: PointData) -> FigureTable:
    return _make_mean_table(data) if data.are_rated else _make_share_table(data)


def _make_mean_table(data: PointData) -> FigureTable:
    head = ("Condition", "Point", "Status", "Items", "n", "Mean", "Interval", "Half-width", "Rounds")
    rows = [
        (
            title,
            line.label,
            line.status_label,
            str(line.rated_items),
            str(line.scored),
            format_number(line.mean),
            format_interval(line.low, line.high),
            format_number(line.half_width),
            str(line.rounds),
        )
        for title, lines in data.groups
        for line in lines
    ]
    return FigureTable(head, rows, first_number=3)


def _make_share_table(data: PointData) -> FigureTable:
    corrected_head = ("Beyond guessing",) if any(line.guesses for line in data.lines) else ()
    head = ("Condition", "Point", "Status", "n", "Correct", *corrected_head, "Interval", "Half-width", "Rounds")
    rows = [
        (
            title,
            line.label,
            line.status_label,
            str(line.scored),
            format_share(line.right),
            *(format_share(line.accuracy) for _ in corrected_head),
            "below guessing" if line.is_below_guessing else format_share_interval(line.low, line.high),
            format_points(line.half_width),
            str(line.rounds),
        )
        for title, lines in data.groups
        for line in lines
    ]
    return FigureTable(head, rows, first_number=3)


def write_caption(data: PointData) -> str:
    measure = "Mean rating" if data.are_rated else "Share of right answers"
    text = f"{measure} at each point, with the interval at its last decision"
    if any(line.guesses for line in data.lines):
        text += ". Both are corrected for guessing: 0 % is the level of guessing, 100 % is all answers right"
    n_open = sum(line.is_open for line in data.lines)
    return f"{text}. " + (
        f"{n_open} of {len(data.lines)} points are still open." if n_open else "Every point is decided."
    )


def write_alt_text(data: PointData) -> str:
    values = [(format_number(line.mean) if line.scale else format_share(line.accuracy)) for line in data.lines]
    names = [f"{title}, {line.label}" for title, lines in data.groups for line in lines]
    texts = [f"{name}: {value}" for name, value in zip(names, values, strict=True)]
    return ("Mean rating" if data.are_rated else "Accuracy") + " by point. " + "; ".join(texts[:8])


FIGURE = FigureKind(
    "points", "Points", select_data, compute_size, draw_figure, make_table, write_caption, write_alt_text
)
