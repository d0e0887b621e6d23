"""Descriptives: scores and the share of each scale point, by condition and by category."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import product
from math import ceil

import numpy as np

from grading_app.results.analysis.data import AnalysisData
from grading_app.results.scope import FLAGGED, MISSING_WRONG
from grading_app.results.scores import count_missing, count_ratings, estimate
from grading_app.results.statistic_format import MINUS
from grading_app.results.table import ResultColumn, ResultTable, Row
from grading_app.statistics.intervals import STUDENT, describe_share_coverage, describe_skew_coverage

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
    tables = [_build_point_table(data, counts, ranges, "scale_points", "Share of each scale point by condition", None)]
    if len(names) > 1:
        tables.append(
            _build_point_table(data, counts, ranges, "category_points", "Share of each scale point by category", names)
        )
    return tables


def _build_point_table(
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


QUANTILES = {0.25: "Lower quartile", 0.5: "Median", 0.75: "Upper quartile"}
FILES_ONLY = ("q25", "q75", "constant")


def build_descriptive_tables(data: AnalysisData) -> list[ResultTable]:
    by_condition = _build_table(data, "descriptives", "Scores by condition", [None])
    names = sorted(set(data.categories) - {""})
    return [by_condition, *([_build_table(data, "categories", "Scores by category", names)] if len(names) > 1 else [])]


def _build_table(data: AnalysisData, name: str, title: str, categories: list[str] | list[None]) -> ResultTable:
    columns = [
        ResultColumn("condition", "Condition"),
        *([] if categories == [None] else [ResultColumn("category", "Category")]),
        ResultColumn("items", "Items", "count"),
        ResultColumn("n", "Scores", "count"),
        ResultColumn("missing", "No score", "count"),
        ResultColumn("mean", "Share" if data.is_share else "Mean", data.measure.mean_column),
        ResultColumn("interval", "95 % interval", data.measure.interval_column),
        ResultColumn("sd", "SD", "number"),
        *(ResultColumn(f"q{round(100 * q)}", label, "number") for q, label in QUANTILES.items()),
        ResultColumn("within_sd", "SD within items", "number"),
        ResultColumn("constant", "Items without variance", "share"),
    ]
    rows = [_build_row(data, condition, category) for condition in data.conditions for category in categories]
    estimates = (
        "Mean of scores, with a standard error clustered by item. SD, quartiles and median are those of the item means."
    )
    methods = dict.fromkeys(str(row["method"]) for row in rows if row["method"])
    asked_once = [row["items"] for row in rows if data.is_share and row["interval"] and row["items"] == row["n"]]
    unbounded = [row["items"] for row in rows if str(row["method"]).startswith(STUDENT)]
    interval_note = f"Interval: {', '.join(methods)}." if methods else ""
    coverage = (describe_share_coverage(asked_once), describe_skew_coverage(unbounded))
    notes = [note for note in (interval_note, *coverage) if note]
    scope = data.scope
    has_all_items = not scope.category and not scope.without and FLAGGED not in scope.exclude
    if categories == [None] and has_all_items and data.scores.missing.any():
        reasons = count_missing(scope.experiment, scope.measure, scope.wave, scope.excluded_answers)
        texts = [
            f"{label}: {', '.join(f'{n:,} {reason}' for reason, n in reasons[key].items())}"
            for key, label in data.labels.items()
            if key in reasons
        ]
        notes.append(f"No score: {'; '.join(texts)}.")
    waves = [str(wave) for wave in data.scope.experiment.waves.answered()] if data.scope.wave is None else []
    if len(waves) > 1:
        notes.append(f"These numbers pool {len(waves)} waves ({', '.join(waves)}). Waves tests whether they differ.")
    on_page = [column.name for column in columns if column.name not in FILES_ONLY]
    return ResultTable(name, title, columns, rows, formula=estimates, notes=notes, page_columns=on_page)


def _build_row(data: AnalysisData, condition: int, category: str | None) -> Row:
    column = data.scores.find_column(condition)
    in_category = np.array([category is None or name == category for name in data.categories], dtype=np.bool_)
    is_used = in_category & (data.scores.n[:, column] > 0)
    means, n, within = (
        data.scores.mean[is_used, column],
        data.scores.n[is_used, column],
        data.scores.within[is_used, column],
    )
    is_repeated = n > 1
    score = estimate(data.scores, data.measure, condition, is_selected=in_category)
    df = int((n - 1).sum())
    return {
        "condition": data.labels[condition],
        "category": category,
        "items": score.items,
        "n": score.n,
        "missing": score.missing,
        "mean": score.mean,
        "interval": score.interval,
        "method": score.method or score.reason,
        "sd": float(means.std(ddof=1)) if len(means) > 1 else None,
        **{f"q{round(100 * q)}": float(np.quantile(means, q)) if len(means) else None for q in QUANTILES},
        "within_sd": float(np.sqrt(within.sum() / df)) if df else None,
        "constant": float((within[is_repeated] == 0).mean()) if is_repeated.any() else None,
    }
