"""The share of right answers in each condition, with its interval."""

from __future__ import annotations

from itertools import groupby

from grading_app.results.figure import Figure, describe_counts
from grading_app.results.figures import share_rows
from grading_app.results.figures.share_rows import RowPanel, ShareRow
from grading_app.results.frames import Frames
from grading_app.results.statistic_format import format_share


def make_figure(frames: Frames) -> Figure | None:
    """Return the figure of the measures that are shares; None if there is none."""
    lines = [line for line in frames.lines if line.measure.is_share and line.score.n and not line.measure.is_rating]
    if not lines:
        return None
    panels = [
        RowPanel(measure.label, [ShareRow.of(one.condition, one.score) for one in of])
        for measure, of in groupby(lines, key=lambda line: line.measure)
    ]
    caption = "Share of right answers among the answers with a score, with the modified Wilson 95 % interval"
    if any(line.score.n > line.score.items for line in lines):
        caption += " at the effective number of answers, because answers to the same item are correlated"
    missing = sum(line.score.missing for line in lines)
    caption += (
        ". Every planned answer has a score."
        if not missing
        else (
            ". One planned answer has no score and is excluded."
            if missing == 1
            else f". {missing:,} planned answers have no score and are excluded."
        )
    )
    texts = [f"{line.condition}: {format_share(line.score.mean)} by {line.measure.label}" for line in lines]
    rows = [(line.measure.label, line.condition, "", line.score) for line in lines]
    return Figure(
        "accuracy",
        "Accuracy",
        caption + describe_counts([line.score.n for line in lines], "answers per row"),
        "Accuracy by condition. " + "; ".join(texts[:8]),
        lambda width: share_rows.compute_size(panels, width),
        lambda width: share_rows.draw_panels(panels, width),
        lambda: share_rows.make_score_table("accuracy", "Accuracy", rows),
        in_report=True,
    )
