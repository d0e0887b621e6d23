"""Category by condition: differences from a baseline within each category, and whether they differ by category."""

from __future__ import annotations

from typing import Any

import numpy as np

from grading_app.analysis.data import AnalysisData
from grading_app.reports import statistic_format
from grading_app.reports.result_table import Kind, ResultColumn, ResultTable
from grading_app.statistics.category_interaction import Interaction, category_interaction
from grading_app.statistics.condition_pairs import ConditionPair, compare_conditions
from grading_app.statistics.paired import holm

MOST_ROWS = 300
LEVEL = 0.05


def build_category_tables(data: AnalysisData) -> list[ResultTable]:
    """Return no table for a single category or condition."""
    names = sorted(set(data.categories) - {""})
    if len(names) < 2 or len(data.conditions) < 2:
        return []
    found = category_interaction(data.scores.mean, data.categories)
    tables = [_compare_within_categories(data, names), *([_build_interaction_table(found)] if found else [])]
    return [table for table in tables if table.rows]


def _compare_within_categories(data: AnalysisData, names: list[str]) -> ResultTable:
    chosen = data.scope.baseline
    baseline = chosen if chosen in data.conditions else data.conditions[0]
    pairs: list[tuple[str, ConditionPair]] = []
    for name in names:
        scores = data.scores.select_items(np.array([one == name for one in data.categories], dtype=np.bool_))
        others = [one for one in data.conditions if one != baseline]
        compared = [compare_conditions(scores, baseline, other, data.bounds) for other in others]
        pairs += [(name, pair) for pair in compared if pair]
    corrected = holm([pair.change.p_or_one for _, pair in pairs])
    by_p = sorted(zip(pairs, corrected, strict=True), key=lambda entry: entry[0][1].change.p_or_one)
    rows = [_build_row(data, name, pair, p_holm) for (name, pair), p_holm in by_p]
    signed: Kind = "signed_share" if data.is_share else "signed"
    ends: Kind = "points_interval" if data.is_share else "interval"
    notes = [] if chosen == baseline else ["No baseline is chosen: the first condition is taken."]
    if len(rows) > MOST_ROWS:
        notes.append(f"{MOST_ROWS} of {len(rows)} differences, those with the smallest p.")
    return ResultTable(
        "category_differences",
        f"Differences from {data.labels[baseline]} by category",
        [
            ResultColumn("category", "Category"),
            ResultColumn("condition", "Condition"),
            ResultColumn("items", "Common items", "count"),
            ResultColumn("difference", "Difference", signed),
            ResultColumn("difference_ci", "95 % interval", ends),
            ResultColumn("test", "Test"),
            ResultColumn("p", "p", "p"),
            ResultColumn("p_holm", "p (Holm)", "p"),
        ],
        rows[:MOST_ROWS],
        formula="Mean over the category's common items of the condition's cell mean minus the baseline's.",
        correction=f"Holm over the {len(rows)} comparisons of this table.",
        sentence=_describe_result(data, rows, data.labels[baseline]),
        notes=notes,
    )


def _build_row(data: AnalysisData, category: str, pair: ConditionPair, p_holm: float) -> dict[str, Any]:
    change = pair.change
    return {
        "category": category,
        "condition": data.labels[pair.b],
        "items": pair.items,
        "difference": change.mean,
        "difference_ci": (change.low, change.high) if change.low is not None else None,
        "test": change.test or change.reason,
        "p": change.p,
        "p_holm": p_holm if change.p is not None else None,
    }


def _describe_result(data: AnalysisData, rows: list[dict[str, Any]], baseline: str) -> str:
    clear = [row for row in rows if row["p_holm"] is not None and row["p_holm"] < LEVEL]
    if not clear:
        return f"In no category does a condition differ from {baseline} at the 5 % level after Holm's correction."
    first = clear[0]
    size = statistic_format.format_points if data.is_share else statistic_format.format_number
    return (
        f"{len(clear)} of {len(rows)} differences are clear after Holm's correction; the clearest: "
        f"{first['condition']} on {first['category']}, {statistic_format.add_sign(size(first['difference']))} "
        f"(p {statistic_format.format_p_equation(first['p_holm'])})."
    )


def _build_interaction_table(found: Interaction) -> ResultTable:
    differ = "differ between categories" if found.p < LEVEL else "show no difference between categories in this test"
    return ResultTable(
        "category_interaction",
        "Interaction of category and condition",
        [
            ResultColumn("term", "Term"),
            ResultColumn("items", "Items", "count"),
            ResultColumn("f", "F", "number"),
            ResultColumn("df1", "df of term", "count"),
            ResultColumn("df2", "df of error", "count"),
            ResultColumn("p", "p (permutation)", "p"),
        ],
        [
            {
                "term": "Category × condition",
                "items": found.items,
                "f": found.f,
                "df1": found.df[0],
                "df2": found.df[1],
                "p": found.p,
            }
        ],
        formula="F of the split-plot analysis of variance: items within categories, conditions within items.",
        test=f"Permutation of the items' categories, {found.resamples:,} random ones (Anderson and ter Braak 2003).",
        sentence=f"The differences between conditions {differ} (p {statistic_format.format_p_equation(found.p)}).",
        notes=["Only items that have a score in every condition."],
    )
