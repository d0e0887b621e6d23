"""Variance and design: the sources of variance of scores, and the precision of larger designs."""

from __future__ import annotations

from grading_app.results import statistic_format
from grading_app.results.analysis.data import AnalysisData
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.variance_components import (
    MIN_ITEMS,
    Components,
    find_needed_items,
    paired_power,
    share_intervals,
    variance_components,
)

COMPONENTS = {
    "item": "Items",
    "condition": "Conditions",
    "interaction": "Items × conditions",
    "repetition": "Repetitions",
}


def build_variance_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the tables; none for a single condition or item, or without variance."""
    components = variance_components(data.scores)
    if components is None or components.total == 0:
        return []
    return [_build_component_table(data, components), _build_design_table(data, components)]


def _build_component_table(data: AnalysisData, components: Components) -> ResultTable:
    intervals = share_intervals(data.scores)
    is_single_score = components.repetition is None
    rows = [
        {
            "source": "Items × conditions, with repetitions" if is_single_score and name == "interaction" else label,
            "variance": getattr(components, name),
            "share": getattr(components, name) / components.total,
            "share_ci": intervals.get(name),
        }
        for name, label in COMPONENTS.items()
        if getattr(components, name) is not None
    ]
    largest = max(rows, key=lambda row: row["share"])
    notes = [f"{components.items} items with scores in all {components.conditions} conditions."]
    if is_single_score:
        notes.append("No cell has two scores, so repetitions and interaction cannot be separated.")
    if not intervals:
        notes.append(f"Intervals need {MIN_ITEMS} items.")
    return ResultTable(
        "variance_components",
        "Where the variance lies",
        [
            ResultColumn("source", "Source"),
            ResultColumn("variance", "Variance", "number", 4),
            ResultColumn("share", "Share of total", "share"),
            ResultColumn("share_ci", "95 % interval", "share_interval"),
        ],
        rows,
        formula="Random-effects analysis of variance over cell means; negative components are set to zero. Intervals: "
        "jackknife over items, for these conditions.",
        sentence=f"{largest['source']} account for {statistic_format.format_share(largest['share'])} of the variance.",
        notes=notes,
    )


def _describe_needed_items(components: Components, difference: float | None, repetitions: int) -> str:
    if not difference:
        return "Enter an equivalence margin to see the power to detect a difference of this size."
    items = find_needed_items(components, difference, repetitions)
    needed = "more than ten million" if items is None else f"{items:,}".replace(",", "\u202f")
    return f"A power of 80 % for a difference of {difference:g} at {repetitions} repetitions needs {needed} items."


def _build_design_table(data: AnalysisData, components: Components) -> ResultTable:
    """Return the precision of larger designs, and their power for the equivalence margin."""
    difference = data.scope.margin
    repetitions_now = max(1, round(components.repetitions))
    sizes = [
        (components.items * factor, repetitions_now * repetition_factor)
        for factor in (1, 2, 4)
        for repetition_factor in (1, 2, 4)
    ]
    columns = [
        ResultColumn("items", "Items", "count"),
        ResultColumn("repetitions", "Repetitions", "count"),
        ResultColumn("answers", "Answers per condition", "count"),
        ResultColumn("half_width", "Half-width of a difference", "points" if data.is_share else "number"),
        *([ResultColumn("power", f"Power for {difference:g}", "share")] if difference else []),
    ]
    rows = []
    for items, repetitions in sizes:
        row = {
            "items": items,
            "repetitions": repetitions,
            "answers": items * repetitions,
            "half_width": components.half_width(items, repetitions),
        }
        if difference:
            row["power"] = paired_power(difference, components.standard_error(items, repetitions), items)
        rows.append(row)
    notes = [_describe_needed_items(components, difference, repetitions_now)]
    if components.repetition is None:
        notes.append("With one score per cell, the gain from repetitions is unknown.")
    return ResultTable(
        "designs",
        "Precision of larger designs",
        columns,
        rows,
        formula="Standard error of the difference of two conditions: the root of 2 (interaction + repetition / R) / I, "
        "for I items and R repetitions. Power: noncentral t, two-sided, α = 0.05.",
        notes=notes,
    )
