"""The accuracy at each point of an adaptive experiment, with the interval at which it stopped."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from grading_app.analysis.figures import share_rows
from grading_app.analysis.figures.kinds import FigureKind, Table
from grading_app.analysis.figures.share_rows import Panel, ShareRow
from grading_app.analysis.frames import Frames
from grading_app.analysis.wording import number, per_cent, per_cent_interval
from runs_app.point_lines import PointLine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 80  # More are a table, not a picture.


@dataclass(frozen=True, slots=True)
class Points:
    """Lines with an accuracy, by condition and wave."""

    groups: list[tuple[str, list[PointLine]]]

    @property
    def lines(self) -> list[PointLine]:
        return [line for _, lines in self.groups for line in lines]


def frame(frames: Frames) -> Points | None:
    lines = [line for line in frames.points if line.accuracy is not None]
    if not lines or len(lines) > MOST_ROWS:
        return None
    several = len({line.wave for line in lines}) > 1
    groups = [
        (f"{frames.labels[condition]}, {wave}" if several else frames.labels[condition], list(found))
        for (condition, wave), found in groupby(lines, key=lambda line: (line.condition, line.wave))
    ]
    return Points(groups)


def size(shown: Points, width: int) -> tuple[int, int]:
    return share_rows.size(_panels(shown), width)


def draw(shown: Points, width: int) -> Figure:
    return share_rows.draw(_panels(shown), width)


def _panels(shown: Points) -> list[Panel]:
    return [
        Panel(title, [ShareRow(line.label, line.accuracy or 0.0, line.low, line.high) for line in lines])
        for title, lines in shown.groups
    ]


def table(shown: Points) -> Table:
    beyond = ("Beyond guessing",) if any(line.guesses for line in shown.lines) else ()
    head = ("Condition", "Point", "Status", "n", "Right", *beyond, "Interval", "Half-width", "Rounds")
    rows = [
        (
            title,
            line.label,
            line.status_label,
            str(line.scored),
            per_cent(line.right),
            *(per_cent(line.accuracy) for _ in beyond),
            "below guessing" if line.is_below_guessing else per_cent_interval(line.low, line.high),
            number(100 * line.half_width if line.half_width is not None else None),
            str(line.rounds),
        )
        for title, lines in shown.groups
        for line in lines
    ]
    return Table(head, rows, first_number=3)


def caption(shown: Points) -> str:
    text = "Share of right answers at each point, with the interval at its last decision"
    if any(line.guesses for line in shown.lines):
        text += "; both beyond guessing: 0 is what guessing gives, 100 % is all right"
    still = sum(line.is_open for line in shown.lines)
    return f"{text}. " + (
        f"{still} of {len(shown.lines)} points are still open." if still else "Every point is decided."
    )


def alt(shown: Points) -> str:
    described = [f"{title}, {line.label}: {per_cent(line.accuracy)}" for title, lines in shown.groups for line in lines]
    return "Accuracy by point. " + "; ".join(described[:8])


FIGURE = FigureKind("points", "Points", frame, size, draw, table, caption, alt)
