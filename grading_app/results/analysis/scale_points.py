"""The share of each point of a rating scale, by condition and by category."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import ceil

from grading_app.results.analysis.data import AnalysisData
from grading_app.results.scope import MISSING_WRONG
from grading_app.results.scores import count_ratings
from grading_app.results.table import ResultColumn, ResultTable, Row

MAX_COLUMNS = 21
"""The maximum number of columns. The points of a longer scale are grouped into ranges."""

Counts = Mapping[tuple[int, str], Mapping[int, int]]
"""The number of ratings by point of the scale, for each condition and category."""


def build_scale_point_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the tables; none for grades, because only ratings have scale points."""
    if not data.scope.measure.is_rating or data.bounds is None or not data.conditions:
        return []
    counts = _count_points(data)
    names = sorted(set(data.categories) - {""})
    tables = [_build_table(data, counts, "scale_points", "Share of each scale point by condition", None)]
    if len(names) > 1:
        tables.append(_build_table(data, counts, "category_points", "Share of each scale point by category", names))
    return tables


def _count_points(data: AnalysisData) -> Counts:
    scope, counts_missing = data.scope, data.scope.missing == MISSING_WRONG
    items = data.scores.items.tolist()
    counts: defaultdict[tuple[int, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for condition, category, rating, n in count_ratings(
        scope.experiment, scope.measure, items, scope.wave, scope.excluded_answers
    ):
        if rating is not None or counts_missing:
            counts[condition, category][_find_ends(data)[0] if rating is None else rating] += n
    return counts


def _find_ends(data: AnalysisData) -> tuple[int, int]:
    low, high = data.bounds or (0.0, 0.0)
    return int(low), int(high)


def _list_ranges(data: AnalysisData) -> list[range]:
    """Return the points of each column: one point, or several if the scale has more than MAX_COLUMNS."""
    low, high = _find_ends(data)
    step = ceil((high - low + 1) / MAX_COLUMNS)
    return [range(start, min(start + step, high + 1)) for start in range(low, high + 1, step)]


def _build_table(
    data: AnalysisData, counts: Counts, name: str, title: str, categories: list[str] | None
) -> ResultTable:
    ranges = _list_ranges(data)
    columns = [
        ResultColumn("condition", "Condition"),
        *([] if categories is None else [ResultColumn("category", "Category")]),
        ResultColumn("n", "Scores", "count"),
        *(ResultColumn(_name_column(points), _label_column(points), "share") for points in ranges),
    ]
    row_categories: list[str | None] = [None] if categories is None else [*categories]
    rows = [
        _build_row(data, counts, condition, category, ranges)
        for condition in data.conditions
        for category in row_categories
    ]
    range_note = f"The scale has {len(range(*_find_ends(data))) + 1} points, so each column is a range of points."
    return ResultTable(
        name,
        title,
        columns,
        rows,
        formula="Share of the scores at this point of the scale. Every repetition counts as one score.",
        notes=[range_note] if len(ranges[0]) > 1 else [],
    )


def _build_row(data: AnalysisData, counts: Counts, condition: int, category: str | None, ranges: list[range]) -> Row:
    point_counts: defaultdict[int, int] = defaultdict(int)
    for (counted_condition, counted_category), points in counts.items():
        if counted_condition == condition and category in (None, counted_category):
            for point, n in points.items():
                point_counts[point] += n
    total = sum(point_counts.values())
    return {
        "condition": data.labels[condition],
        "category": category,
        "n": total,
        **{
            _name_column(points): sum(point_counts[point] for point in points) / total if total else None
            for points in ranges
        },
    }


def _name_column(points: range) -> str:
    return f"point_{points[0]}" if len(points) == 1 else f"points_{points[0]}_to_{points[-1]}"


def _label_column(points: range) -> str:
    first, last = (str(point).replace("-", "−") for point in (points[0], points[-1]))
    return first if len(points) == 1 else f"{first} to {last}"
