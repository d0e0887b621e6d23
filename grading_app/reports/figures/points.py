"""The accuracy or mean rating at each point of an adaptive experiment, with the interval at which it stopped."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from grading_app.reports.figures import share_rows
from grading_app.reports.figures.kinds import FigureKind, Table
from grading_app.reports.figures.share_rows import Panel, ShareRow
from grading_app.reports.frames import Frames
from grading_app.reports.statistic_format import interval, number, per_cent, per_cent_interval, points
from runs_app.monitoring.point_status import PointLine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 80  # More rows need a table, not a picture.


@dataclass(frozen=True, slots=True)
class Points:
    """The lines with an accuracy or a mean, by condition, wave and scale."""

    groups: list[tuple[str, list[PointLine]]]

    @property
    def are_rated(self) -> bool:
        return self.lines[0].scale is not None

    @property
    def lines(self) -> list[PointLine]:
        return [line for _, lines in self.groups for line in lines]


def frame(frames: Frames) -> Points | None:
    lines = [line for line in frames.points if _value(line) is not None]
    if not lines or len(lines) > MOST_ROWS:
        return None
    several = len({line.wave for line in lines}) > 1
    groups = [
        (f"{frames.labels[condition]}, {wave}" if several else frames.labels[condition], list(found))
        for (condition, wave, _), found in groupby(lines, key=lambda line: (line.condition, line.wave, line.scale))
    ]
    return Points(groups)


def _value(line: PointLine) -> float | None:
    return line.accuracy if line.scale is None else line.mean


def size(shown: Points, width: int) -> tuple[int, int]:
    return share_rows.size(_panels(shown), width)


def draw(shown: Points, width: int) -> Figure:
    return share_rows.draw(_panels(shown), width)


def _panels(shown: Points) -> list[Panel]:
    return [
        Panel(title, [ShareRow(line.label, _value(line) or 0.0, line.low, line.high) for line in lines], lines[0].scale)
        for title, lines in shown.groups
    ]


def table(shown: Points) -> Table:
    return _table_of_means(shown) if shown.are_rated else _table_of_shares(shown)


def _table_of_means(shown: Points) -> Table:
    head = ("Condition", "Point", "Status", "Items", "n", "Mean", "Interval", "Half-width", "Rounds")
    rows = [
        (
            title,
            line.label,
            line.status_label,
            str(line.rated_items),
            str(line.scored),
            number(line.mean),
            interval(line.low, line.high),
            number(line.half_width),
            str(line.rounds),
        )
        for title, lines in shown.groups
        for line in lines
    ]
    return Table(head, rows, first_number=3)


def _table_of_shares(shown: Points) -> Table:
    beyond = ("Beyond guessing",) if any(line.guesses for line in shown.lines) else ()
    head = ("Condition", "Point", "Status", "n", "Correct", *beyond, "Interval", "Half-width", "Rounds")
    rows = [
        (
            title,
            line.label,
            line.status_label,
            str(line.scored),
            per_cent(line.right),
            *(per_cent(line.accuracy) for _ in beyond),
            "below guessing" if line.is_below_guessing else per_cent_interval(line.low, line.high),
            points(line.half_width),
            str(line.rounds),
        )
        for title, lines in shown.groups
        for line in lines
    ]
    return Table(head, rows, first_number=3)


def caption(shown: Points) -> str:
    known = "Mean rating" if shown.are_rated else "Share of right answers"
    text = f"{known} at each point, with the interval at its last decision"
    if any(line.guesses for line in shown.lines):
        text += "; both beyond guessing: 0 is what guessing gives, 100 % is all right"
    still = sum(line.is_open for line in shown.lines)
    return f"{text}. " + (
        f"{still} of {len(shown.lines)} points are still open." if still else "Every point is decided."
    )


def alt(shown: Points) -> str:
    values = [(number(line.mean) if line.scale else per_cent(line.accuracy)) for line in shown.lines]
    names = [f"{title}, {line.label}" for title, lines in shown.groups for line in lines]
    described = [f"{name}: {value}" for name, value in zip(names, values, strict=True)]
    return ("Mean rating" if shown.are_rated else "Accuracy") + " by point. " + "; ".join(described[:8])


FIGURE = FigureKind("points", "Points", frame, size, draw, table, caption, alt)
