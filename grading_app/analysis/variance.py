"""Variance and design: where the variance of scores lies, and what more items or more repetitions would gain."""

from __future__ import annotations

from grading_app.analysis.data import AnalysisData
from grading_app.reports import statistic_format
from grading_app.reports.result_table import ResultColumn, ResultTable
from grading_app.statistics.variance_components import (
    MIN_ITEMS,
    Components,
    find_needed_items,
    paired_power,
    share_intervals,
    variance_components,
)

PARTS = {
    "item": "Items",
    "condition": "Conditions",
    "interaction": "Items × conditions",
    "repetition": "Repetitions",
}


def build_variance_tables(data: AnalysisData) -> list[ResultTable]:
    """Return no table for a single condition or item."""
    found = variance_components(data.scores)
    if found is None or found.total == 0:
        return []
    return [_build_component_table(data, found), _build_design_table(data, found)]


def _build_component_table(data: AnalysisData, found: Components) -> ResultTable:
    intervals = share_intervals(data.scores)
    single = found.repetition is None
    rows = [
        {
            "source": "Items × conditions, with repetitions" if single and name == "interaction" else label,
            "variance": getattr(found, name),
            "share": getattr(found, name) / found.total,
            "share_ci": intervals.get(name),
        }
        for name, label in PARTS.items()
        if getattr(found, name) is not None
    ]
    largest = max(rows, key=lambda row: row["share"])
    notes = [f"{found.items} items that every one of {found.conditions} conditions has scores of."]
    if single:
        notes.append("No cell has two scores, so repetitions cannot be told from the interaction.")
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


def _build_design_table(data: AnalysisData, found: Components) -> ResultTable:
    """Return the precision of larger designs, and their power for the difference that the reader named."""
    wanted = data.scope.margin
    now = max(1, round(found.repetitions))
    sizes = [(found.items * more, now * repeated) for more in (1, 2, 4) for repeated in (1, 2, 4)]
    columns = [
        ResultColumn("items", "Items", "count"),
        ResultColumn("repetitions", "Repetitions", "count"),
        ResultColumn("answers", "Answers per condition", "count"),
        ResultColumn("half_width", "Half-width of a difference", "points" if data.is_share else "number", 3),
        *([ResultColumn("power", f"Power for {wanted:g}", "share")] if wanted else []),
    ]
    rows = []
    for items, repetitions in sizes:
        row = {
            "items": items,
            "repetitions": repetitions,
            "answers": items * repetitions,
            "half_width": found.half_width(items, repetitions),
        }
        if wanted:
            row["power"] = paired_power(wanted, found.standard_error(items, repetitions), items)
        rows.append(row)
    notes = []
    if wanted:
        enough = find_needed_items(found, wanted, now)
        needed = "more than ten million" if enough is None else f"{enough:,}".replace(",", "\u202f")
        notes.append(f"To find a difference of {wanted:g} with a power of 80 % at {now} repetitions: {needed} items.")
    else:
        notes.append("Name a difference (the equivalence margin) to see the power to find it.")
    if found.repetition is None:
        notes.append("With one score per cell, the gain from repetitions is not known.")
    return ResultTable(
        "designs",
        "What a larger design would gain",
        columns,
        rows,
        formula="Standard error of the difference of two conditions: the root of 2 (interaction + repetition / R) / I, "
        "for I items and R repetitions. Power: noncentral t, two-sided, α = 0.05.",
        notes=notes,
    )
