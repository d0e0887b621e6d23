"""The share of right answers in each condition, with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from grading_app.reports.figures import share_rows
from grading_app.reports.figures.kinds import FigureKind, Table
from grading_app.reports.figures.share_rows import Panel, ShareRow
from grading_app.reports.frames import Frames
from grading_app.reports.score_lines import ScoreLine, score_lines
from grading_app.reports.statistic_format import per_cent, per_cent_interval, points

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Accuracies:
    """The lines of the measures that are shares, by measure."""

    measures: list[tuple[str, list[ScoreLine]]]

    @property
    def lines(self) -> list[ScoreLine]:
        return [line for _, lines in self.measures for line in lines]


def frame(frames: Frames) -> Accuracies | None:
    lines = [line for line in score_lines(frames.grades, frames) if line.measure.is_share and line.mean is not None]
    measures = [(measure.label, list(found)) for measure, found in groupby(lines, key=lambda line: line.measure)]
    return Accuracies(measures) if measures else None


def size(shown: Accuracies, width: int) -> tuple[int, int]:
    return share_rows.size(_panels(shown), width)


def draw(shown: Accuracies, width: int) -> Figure:
    return share_rows.draw(_panels(shown), width)


def _panels(shown: Accuracies) -> list[Panel]:
    return [
        Panel(label, [ShareRow(line.condition, line.mean or 0.0, line.low, line.high) for line in lines])
        for label, lines in shown.measures
    ]


def table(shown: Accuracies) -> Table:
    head = ("Measure", "Condition", "n", "Items", "Correct", "95 % interval", "SE by item", "No score")
    rows = [
        (
            line.measure.label,
            line.condition,
            str(line.n),
            str(line.items),
            per_cent(line.mean),
            per_cent_interval(line.low, line.high),
            points(line.se),
            str(line.unread),
        )
        for line in shown.lines
    ]
    return Table(head, rows, first_number=2)


def caption(shown: Accuracies) -> str:
    text = "Share of right answers among those that could be read, with Wilson's 95 % interval"
    if any(line.n > line.items for line in shown.lines):
        text += ", at the effective number of answers, since several answers to one item go together"
    unread = sum(line.unread for line in shown.lines)
    return f"{text}. {_unread_text(unread)}"


def _unread_text(unread: int) -> str:
    if not unread:
        return "Every answer could be read."
    if unread == 1:
        return "One answer could not be read and is left out."
    return f"{unread} answers could not be read and are left out."


def alt(shown: Accuracies) -> str:
    described = [f"{line.condition}: {per_cent(line.mean)} by {line.measure.label}" for line in shown.lines]
    return "Accuracy by condition. " + "; ".join(described[:8])


FIGURE = FigureKind("accuracy", "Accuracy", frame, size, draw, table, caption, alt)
