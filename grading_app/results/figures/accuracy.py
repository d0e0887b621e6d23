"""The share of right answers in each condition, with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from grading_app.results.figures import share_rows
from grading_app.results.figures.kinds import FigureKind, FigureTable
from grading_app.results.figures.share_rows import RowPanel, ShareRow
from grading_app.results.frames import Frames, ScoreLine
from grading_app.results.statistic_format import format_share

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class AccuracyData:
    """The summary lines of the measures that are shares, grouped by measure."""

    measures: list[tuple[str, list[ScoreLine]]]

    @property
    def lines(self) -> list[ScoreLine]:
        return [line for _, lines in self.measures for line in lines]


def select_data(frames: Frames) -> AccuracyData | None:
    lines = [line for line in frames.lines if line.measure.is_share and line.score.n and not line.measure.is_rating]
    measures = [
        (measure.label, list(summaries)) for measure, summaries in groupby(lines, key=lambda line: line.measure)
    ]
    return AccuracyData(measures) if measures else None


def compute_size(data: AccuracyData, width: int) -> tuple[int, int]:
    return share_rows.compute_size(_make_panels(data), width)


def draw_figure(data: AccuracyData, width: int) -> Figure:
    return share_rows.draw_panels(_make_panels(data), width)


def _make_panels(data: AccuracyData) -> list[RowPanel]:
    return [
        RowPanel(
            label, [ShareRow(line.condition, line.score.mean or 0.0, line.score.low, line.score.high) for line in lines]
        )
        for label, lines in data.measures
    ]


def make_table(data: AccuracyData) -> FigureTable:
    rows = [(line.measure.label, line.condition, *share_rows.format_share_cells(line.score)) for line in data.lines]
    return FigureTable(("Measure", "Condition", *share_rows.SHARE_HEAD), rows, first_number=2)


def write_caption(data: AccuracyData) -> str:
    text = "Share of right answers among the answers with a score, with the modified Wilson 95 % interval"
    if any(line.score.n > line.score.items for line in data.lines):
        text += " at the effective number of answers, because answers to the same item are correlated"
    unread = sum(line.score.missing for line in data.lines)
    return f"{text}. {_describe_unread(unread)}"


def _describe_unread(unread: int) -> str:
    if not unread:
        return "Every planned answer has a score."
    if unread == 1:
        return "One planned answer has no score and is excluded."
    return f"{unread:,} planned answers have no score and are excluded."


def write_alt_text(data: AccuracyData) -> str:
    texts = [f"{line.condition}: {format_share(line.score.mean)} by {line.measure.label}" for line in data.lines]
    return "Accuracy by condition. " + "; ".join(texts[:8])


FIGURE = FigureKind(
    "accuracy", "Accuracy", select_data, compute_size, draw_figure, make_table, write_caption, write_alt_text
)
