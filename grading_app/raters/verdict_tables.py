"""The tables of a grader's scores: the means of the conditions that it graded, and their strengths in pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from grading_app.raters.pairwise_stats import RankedCondition
from grading_app.raters.verdict_stats import AnswerScores
from grading_app.results.frames import RatedDimension
from grading_app.results.table import ResultColumn, ResultTable


def make_verdict_table(
    name: str, scores: Sequence[AnswerScores], labels: Mapping[int, str], dimensions: Mapping[int, RatedDimension]
) -> ResultTable:
    """Return a row for each condition that answered, on each dimension. labels: of the conditions."""
    is_share = any(one.is_share for one in scores)
    columns = [
        ResultColumn("condition", "Answers of"),
        ResultColumn("dimension", "Dimension"),
        ResultColumn("mean", "Mean", "share" if is_share else "number"),
        ResultColumn("interval", "95 % interval", "share_interval" if is_share else "interval"),
        ResultColumn("n", "Scores", "count"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("missing", "No score", "count"),
    ]
    rows = [
        {
            "condition": labels.get(one.condition),
            "dimension": found.title if (found := dimensions.get(one.dimension or 0)) else None,
            **{key: getattr(one.score, key) for key in ("mean", "interval", "n", "items", "missing")},
        }
        for one in scores
    ]
    reasons = {
        f"{row['condition']} has no interval: {one.score.reason}.": None
        for row, one in zip(rows, scores, strict=True)
        if one.score.interval is None and one.score.reason
    }
    has_dimensions = any(one.dimension for one in scores)
    columns = [column for column in columns if has_dimensions or column.name != "dimension"]
    return ResultTable(name, "Scores by condition", columns, rows, notes=list(reasons))


def make_strength_table(name: str, ranked: Iterable[RankedCondition]) -> ResultTable:
    """Return the log-strengths of the conditions that a pairwise rater compared."""
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("strength", "Strength", "number", 3),
        ResultColumn("interval", "95 % interval", "interval", 3),
    ]
    rows = [
        {
            "condition": one.label,
            "strength": one.strength,
            "interval": None if one.low is None or one.high is None else (one.low, one.high),
        }
        for one in ranked
    ]
    formula = (
        "Log-strengths of the Bradley-Terry model with mean 0: a difference of 1 multiplies the odds of winning by "
        "2.72."
    )
    return ResultTable(name, "Strengths", columns, rows, formula=formula)
