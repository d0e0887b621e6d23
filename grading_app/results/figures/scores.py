"""The means of the conditions on the first measure of a grader, with their intervals."""

from __future__ import annotations

import math

from grading_app.results.figure import Figure
from grading_app.results.figures import share_rows
from grading_app.results.figures.share_rows import RowPanel, ShareRow
from grading_app.results.frames import Frames
from grading_app.results.statistic_format import format_mean
from grading_app.results.table import ResultColumn, ResultTable


def make_figure(frames: Frames) -> Figure | None:
    """Return the figure of the first measure that is no rating; None if it is the only share: `accuracy` shows it."""
    graded = [found for found in frames.scores if not found.measure.is_rating]
    measures = [found.measure for found in graded if any(score.n for score in found.conditions.values())]
    if not measures or (measures[0].is_share and sum(measure.is_share for measure in measures) == 1):
        return None
    measure = measures[0]
    lines = [line for line in frames.lines if line.measure == measure and line.score.n]
    rows = [ShareRow.of(line.condition, line.score) for line in lines]
    scale = None
    if not measure.is_share:
        values = [value for row in rows for value in (row.value, row.low, row.high) if value is not None]
        low, high = measure.bounds or (min(*values, 0.0), max(values))
        scale = (math.floor(low), max(math.ceil(high), math.floor(low) + 1))
    panels = [RowPanel(measure.label, rows, scale)]
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("n", "n", "count"),
        ResultColumn("mean", measure.label, measure.mean_column),
        ResultColumn("interval", "95 % interval", measure.interval_column),
    ]
    records = [
        {"condition": line.condition, "n": line.score.n, "mean": line.score.mean, "interval": line.score.interval}
        for line in lines
    ]
    texts = [f"{line.condition}: {format_mean(line.score.mean, measure.is_share)}" for line in lines]
    return Figure(
        "scores",
        "Scores by condition",
        f"Means of {measure.label} with 95 % intervals, clustered by item.",
        f"{measure.label} by condition. " + "; ".join(texts[:8]),
        lambda width: share_rows.compute_size(panels, width),
        lambda width: share_rows.draw_panels(panels, width),
        lambda: ResultTable("scores", "Scores by condition", columns, records),
    )
