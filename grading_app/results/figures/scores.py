"""The means of the conditions on the first measure of a grader, with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grading_app.results.figures import share_rows
from grading_app.results.figures.kinds import FigureKind, FigureTable
from grading_app.results.figures.share_rows import RowPanel, ShareRow
from grading_app.results.frames import Frames, ScoreLine
from grading_app.results.statistic_format import format_mean, format_mean_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class ScoreData:
    """The scores of one measure by condition."""

    lines: list[ScoreLine]

    @property
    def panels(self) -> list[RowPanel]:
        measure = self.lines[0].measure
        rows = [
            ShareRow(line.condition, line.score.mean or 0.0, line.score.low, line.score.high) for line in self.lines
        ]
        if measure.is_share:
            return [RowPanel(measure.label, rows)]
        values = [value for row in rows for value in (row.value, row.low, row.high) if value is not None]
        low, high = measure.bounds or (min(*values, 0.0), max(values))
        return [RowPanel(measure.label, rows, (math.floor(low), max(math.ceil(high), math.floor(low) + 1)))]


def select_data(frames: Frames) -> ScoreData | None:
    """Return the first measure that is no rating; None if it is the only share, which `accuracy` shows."""
    graded = [found for found in frames.scores if not found.measure.is_rating]
    measures = [found.measure for found in graded if any(score.n for score in found.conditions.values())]
    if not measures or (measures[0].is_share and sum(measure.is_share for measure in measures) == 1):
        return None
    first = measures[0]
    return ScoreData([line for line in frames.lines if line.measure == first and line.score.n])


def compute_size(data: ScoreData, width: int) -> tuple[int, int]:
    return share_rows.compute_size(data.panels, width)


def draw_figure(data: ScoreData, width: int) -> Figure:
    return share_rows.draw_panels(data.panels, width)


def make_table(data: ScoreData) -> FigureTable:
    rows = [
        (
            line.condition,
            str(line.score.n),
            format_mean(line.score.mean, line.measure.is_share),
            format_mean_interval(line.score.low, line.score.high, line.measure.is_share),
        )
        for line in data.lines
    ]
    return FigureTable(("Condition", "n", data.lines[0].measure.label, "95 % interval"), rows, first_number=1)


def write_caption(data: ScoreData) -> str:
    return f"Means of {data.lines[0].measure.label} with 95 % intervals, clustered by item."


def write_alt_text(data: ScoreData) -> str:
    texts = [f"{line.condition}: {format_mean(line.score.mean, line.measure.is_share)}" for line in data.lines]
    return f"{data.lines[0].measure.label} by condition. " + "; ".join(texts[:8])


FIGURE = FigureKind(
    "scores", "Scores by condition", select_data, compute_size, draw_figure, make_table, write_caption, write_alt_text
)
