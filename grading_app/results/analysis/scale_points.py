"""The share of each point of a rating scale, by condition and by category."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import product
from math import ceil

from grading_app.results.analysis.data import AnalysisData
from grading_app.results.scope import MISSING_WRONG
from grading_app.results.scores import count_ratings
from grading_app.results.statistic_format import MINUS
from grading_app.results.table import ResultColumn, ResultTable, Row

MAX_COLUMNS = 21
"""The maximum number of columns. The points of a longer scale are grouped into ranges."""

Counts = Mapping[tuple[int, str], Mapping[int, int]]
"""The number of ratings by point of the scale, for each condition and category."""


def build_scale_point_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the tables; none for grades, because only ratings have scale points."""
    if not data.scope.measure.is_rating or data.bounds is None or not data.conditions:
        return []
    low, high = map(int, data.bounds)
    scope = data.scope
    counts: defaultdict[tuple[int, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for condition, category, rating, n in count_ratings(
        scope.experiment, scope.measure, data.scores.items.tolist(), scope.wave, scope.excluded_answers
    ):
        if rating is not None or scope.missing == MISSING_WRONG:
            counts[condition, category][low if rating is None else rating] += n
    step = ceil((high - low + 1) / MAX_COLUMNS)
    ranges = [range(start, min(start + step, high + 1)) for start in range(low, high + 1, step)]
    names = sorted(set(data.categories) - {""})
    tables = [_build_table(data, counts, ranges, "scale_points", "Share of each scale point by condition", None)]
    if len(names) > 1:
        tables.append(
            _build_table(data, counts, ranges, "category_points", "Share of each scale point by category", names)
        )
    return tables


def _build_table(
    data: AnalysisData, counts: Counts, ranges: list[range], name: str, title: str, categories: list[str] | None
) -> ResultTable:
    """Return the table. ranges: the points of each column, one or several."""
    columns = [
        ResultColumn("condition", "Condition"),
        *([] if categories is None else [ResultColumn("category", "Category")]),
        ResultColumn("n", "Scores", "count"),
        *(
            ResultColumn(_name_column(points), " to ".join(dict.fromkeys(ends)).replace("-", MINUS), "share")
            for points in ranges
            for ends in [(str(points[0]), str(points[-1]))]
        ),
    ]
    rows: list[Row] = []
    for condition, category in product(data.conditions, [None] if categories is None else categories):
        point_counts: defaultdict[int, int] = defaultdict(int)
        for (counted_condition, counted_category), of_points in counts.items():
            if counted_condition == condition and category in (None, counted_category):
                for point, n in of_points.items():
                    point_counts[point] += n
        total = sum(point_counts.values())
        shares = {
            _name_column(points): sum(point_counts[point] for point in points) / total if total else None
            for points in ranges
        }
        rows.append({"condition": data.labels[condition], "category": category, "n": total, **shares})
    range_note = f"The scale has {sum(map(len, ranges))} points, so each column is a range of points."
    return ResultTable(
        name,
        title,
        columns,
        rows,
        formula="Share of the scores at this point of the scale. Every repetition counts as one score.",
        notes=[range_note] if len(ranges[0]) > 1 else [],
    )


def _name_column(points: range) -> str:
    return f"point_{points[0]}" if len(points) == 1 else f"points_{points[0]}_to_{points[-1]}"
