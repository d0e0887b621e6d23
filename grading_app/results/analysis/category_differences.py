"""Category by condition: differences from a baseline within each category, and their dependence on the category."""

from __future__ import annotations

from typing import Any

import numpy as np

from grading_app.results import statistic_format
from grading_app.results.analysis.data import AnalysisData
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.condition_pairs import ConditionPair, compare_conditions, describe_dependence
from grading_app.statistics.factorial_model import Interaction, category_interaction
from grading_app.statistics.intervals import describe_change_coverage
from grading_app.statistics.paired import describe_methods, holm

MAX_ROWS = 300
MAX_NAMES = 3  # Of more differences, a clause states the number.
LEVEL = 0.05


def build_category_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the tables; none for a single category or condition."""
    names = sorted(set(data.categories) - {""})
    if len(names) < 2 or len(data.conditions) < 2:
        return []
    interaction = category_interaction(data.scores.mean, data.categories)
    tables = [
        _build_difference_table(data, names),
        *([_build_interaction_table(data, interaction)] if interaction else []),
    ]
    return [table for table in tables if table.rows]


def _compare_within_categories(
    data: AnalysisData, names: list[str], baseline: int
) -> list[tuple[tuple[str, ConditionPair], float]]:
    """Return (category, comparison with the baseline) with p after Holm's correction, the smallest p first."""
    pairs: list[tuple[str, ConditionPair]] = []
    for name in names:
        scores = data.scores.select_items(np.array([one == name for one in data.categories], dtype=np.bool_))
        others = [one for one in data.conditions if one != baseline]
        comparisons = [compare_conditions(scores, baseline, other, data.bounds) for other in others]
        pairs += [(name, pair) for pair in comparisons if pair]
    corrected = holm([pair.change.p_or_one for _, pair in pairs])
    return sorted(zip(pairs, corrected, strict=True), key=lambda entry: entry[0][1].change.p_or_one)


def _name_differences(data: AnalysisData, by_p: list[tuple[tuple[str, ConditionPair], float]]) -> str:
    """Return a clause: which conditions differ in which categories."""
    found = sorted(
        f"{data.labels[pair.b]} is {'higher' if pair.change.mean > 0 else 'lower'} on {name}"
        for (name, pair), p in by_p
        if pair.change.p is not None and p < LEVEL
    )
    if len(found) > MAX_NAMES:
        return f"{'; '.join(found[:MAX_NAMES])}; and {len(found) - MAX_NAMES} more differences are significant"
    return "; ".join(found) or "no difference is significant"


def _build_difference_table(data: AnalysisData, names: list[str]) -> ResultTable:
    requested = data.scope.baseline
    baseline = requested if requested in data.conditions else data.conditions[0]
    by_p = _compare_within_categories(data, names, baseline)
    pairs = [pair for (_, pair), _ in by_p]
    filled = [
        _name_differences(data, _compare_within_categories(one, names, baseline)) for one in data.fill_worst_cases()
    ]
    caveat = describe_dependence(_name_differences(data, by_p), filled, at_ends=data.has_ends)
    rows: list[dict[str, Any]] = [
        {
            "category": name,
            "condition": data.labels[pair.b],
            "items": pair.items,
            "difference": pair.change.mean,
            "difference_ci": (pair.change.low, pair.change.high) if pair.change.low is not None else None,
            "test": pair.change.test or pair.change.reason,
            "t": pair.change.t,
            "df": pair.change.df,
            "p": pair.change.p,
            "p_holm": p_holm if pair.change.p is not None else None,
        }
        for (name, pair), p_holm in by_p
    ]
    significant = [row for row in rows if row["p_holm"] is not None and row["p_holm"] < LEVEL]
    sentence = (
        f"No condition differs from {data.labels[baseline]} in any category at the 5 % level after Holm's correction."
    )
    if significant:
        first = significant[0]
        size = statistic_format.add_sign(statistic_format.format_difference(first["difference"], data.is_share))
        sentence = (
            f"{len(significant)} of {len(rows)} differences are significant after Holm's correction. The smallest p: "
            f"{first['condition']} on {first['category']}, {size} "
            f"(p {statistic_format.format_p_equation(first['p_holm'])})."
        )
    notes = [] if requested == baseline else ["No baseline is selected, so the first condition is used."]
    if coverage := describe_change_coverage((pair.change for pair in pairs), is_share=data.is_share):
        notes.append(coverage)
    if len(rows) > MAX_ROWS:
        notes.append(f"Only the {MAX_ROWS} of {len(rows)} differences with the smallest p are listed.")
    return ResultTable(
        "category_differences",
        f"Differences from {data.labels[baseline]} by category",
        [
            ResultColumn("category", "Category"),
            ResultColumn("condition", "Condition"),
            ResultColumn("items", "Common items", "count"),
            ResultColumn("difference", "Difference", data.measure.difference_column),
            ResultColumn("difference_ci", "95 % interval", data.measure.difference_interval_column),
            ResultColumn("test", "Test"),
            ResultColumn("t", "t", "number"),
            ResultColumn("df", "df", "count"),
            ResultColumn("p", "p", "p"),
            ResultColumn("p_holm", "p (Holm)", "p"),
        ],
        rows[:MAX_ROWS],
        formula="Mean over the category's common items of the condition's cell mean minus the baseline's.",
        correction=f"Holm over the {len(rows)} comparisons of this table.",
        test=describe_methods(pair.change for pair in pairs),
        sentence=f"{sentence} {caveat}".strip(),
        notes=notes,
    )


def _name_interaction(interaction: Interaction) -> str:
    verdict = "differ between categories" if interaction.p < LEVEL else "show no difference between categories"
    return f"the differences between conditions {verdict}"


def _build_interaction_table(data: AnalysisData, interaction: Interaction) -> ResultTable:
    outcome, p = _name_interaction(interaction), statistic_format.format_p_equation(interaction.p)
    filled = [category_interaction(one.scores.mean, data.categories) for one in data.fill_worst_cases()]
    caveat = describe_dependence(outcome, [_name_interaction(one) for one in filled if one], at_ends=data.has_ends)
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
                "items": interaction.items,
                "f": interaction.f,
                "df1": interaction.df[0],
                "df2": interaction.df[1],
                "p": interaction.p,
            }
        ],
        formula="F of the split-plot analysis of variance: items within categories, conditions within items.",
        test=f"{interaction.resamples:,} random permutations of the items' categories (Anderson and ter Braak 2003).",
        sentence=f"{outcome[0].upper()}{outcome[1:]} (p {p}). {caveat}".strip(),
        notes=["Only items with a score in every condition are used."],
    )
