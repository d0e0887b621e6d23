"""The share of right answers in each condition, with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from grading_app.analysis import drawing
from grading_app.analysis.figures.kinds import FigureKind, Table
from grading_app.analysis.frames import Frames
from grading_app.analysis.summaries import ScoreLine, score_lines
from grading_app.analysis.wording import number, per_cent, per_cent_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Accuracies:
    """Lines of the measures that are shares, by measure."""

    measures: list[tuple[str, list[ScoreLine]]]

    @property
    def lines(self) -> list[ScoreLine]:
        return [line for _, lines in self.measures for line in lines]


def frame(frames: Frames) -> Accuracies | None:
    lines = [line for line in score_lines(frames.grades, frames) if line.measure.is_share and line.mean is not None]
    measures = [(measure.label, list(found)) for measure, found in groupby(lines, key=lambda line: line.measure)]
    return Accuracies(measures) if measures else None


@dataclass(frozen=True, slots=True)
class Layout:
    """Names stand beside their rows where they leave room for the axis, else above them. Sizes are CSS pixels."""

    width: int
    left: int
    row: int

    @classmethod
    def of(cls, shown: Accuracies, width: int) -> Layout:
        beside = 16 + int(drawing.LETTER * max(len(line.condition) for line in shown.lines))
        return cls(width, beside, 26) if beside <= 0.4 * width else cls(width, 12, 42)

    @property
    def is_stacked(self) -> bool:
        return self.row > 26

    @property
    def axis_width(self) -> int:
        return self.width - self.left - 74

    def height(self, lines: list[ScoreLine]) -> int:
        return self.row * len(lines) + 66


def size(shown: Accuracies, width: int) -> tuple[int, int]:
    layout = Layout.of(shown, width)
    return width, sum(layout.height(lines) for _, lines in shown.measures)


def draw(shown: Accuracies, width: int) -> Figure:
    layout, (_, height) = Layout.of(shown, width), size(shown, width)
    figure = drawing.new_figure(width, height)
    top = 0
    for label, lines in shown.measures:
        tall = layout.row * len(lines)
        box = (layout.left / width, 1 - (top + 30 + tall) / height, layout.axis_width / width, tall / height)
        axis = drawing.plain_axes(figure.add_axes(box))
        drawing.head(axis, label, left=layout.left - 12, offset=8)
        _draw_rows(axis, lines, layout)
        top += layout.height(lines)
    return figure


def _draw_rows(axis: Axes, lines: list[ScoreLine], layout: Layout) -> None:
    drawing.gridlines(axis, "x")
    drawing.interval_rows(axis, [(at, line.mean or 0.0, line.low, line.high) for at, line in enumerate(lines)])
    axis.set_ylim(-len(lines) + (0.7 if layout.is_stacked else 0.4), 0.7 if layout.is_stacked else 0.6)
    axis.set_xlim(0, 1)
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
    axis.set_yticks([-at for at in range(len(lines))], [""] * len(lines))
    for place, line in enumerate(lines):
        drawing.beside(axis, (1, -place), per_cent(line.mean), right=8)
        if layout.is_stacked:
            name = drawing.shortened(line.condition, layout.axis_width)
            drawing.beside(axis, (0, -place), name, up=16)
        else:
            drawing.beside(axis, (0, -place), line.condition, right=-8, ha="right")


def table(shown: Accuracies) -> Table:
    head = ("Measure", "Condition", "n", "Items", "Right", "95 % interval", "SE by item", "No score")
    rows = [
        (
            line.measure.label,
            line.condition,
            str(line.n),
            str(line.items),
            per_cent(line.mean),
            per_cent_interval(line.low, line.high),
            number(100 * line.se if line.se is not None else None),
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
