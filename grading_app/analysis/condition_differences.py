"""Between conditions: paired differences over items, against a baseline or for all pairs."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from grading_app.analysis.data import AnalysisData
from grading_app.reports import statistic_format
from grading_app.reports.result_table import ResultColumn, ResultTable
from grading_app.statistics.condition_pairs import (
    ConditionPair,
    benjamini_hochberg,
    compare_conditions,
    permutation_p_values,
    wilcoxon_p,
)
from grading_app.statistics.known_coverage import describe_change_coverage
from grading_app.statistics.paired import describe_methods, holm

MAX_PAIRS = 300  # Of more pairs, the table lists those with the smallest p.
LEVEL = 0.05


def build_condition_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the tables; none for a single condition."""
    pairs = [pair for a, b in _list_pairs(data) if (pair := compare_conditions(data.scores, a, b, data.bounds))]
    if not pairs:
        return []
    corrected = holm([pair.change.p_or_one for pair in pairs])
    tables = [_build_difference_table(data, pairs, corrected)]
    if any(pair.two_by_two for pair in pairs):
        tables.append(_build_two_by_two_table(data, pairs))
    return tables


def _list_pairs(data: AnalysisData) -> list[tuple[int, int]]:
    baseline = data.scope.baseline
    if baseline in data.conditions:
        return [(baseline, other) for other in data.conditions if other != baseline]
    return list(combinations(data.conditions, 2))


def _build_difference_table(data: AnalysisData, pairs: list[ConditionPair], corrected: list[float]) -> ResultTable:
    notes = ["The unit of each test is the item. Repetitions are averaged first."]
    if not data.is_share and (coverage := describe_change_coverage(pair.items for pair in pairs)):
        notes.append(coverage)
    if len(pairs) > MAX_PAIRS:
        notes.append(
            f"Only the {MAX_PAIRS} of {len(pairs)} pairs with the smallest p are listed. "
            "Select a baseline or fewer conditions."
        )
    return ResultTable(
        "differences",
        "Differences between conditions",
        _list_columns(data),
        _build_rows(data, pairs, corrected),
        formula="B − A: mean over common items of the difference of cell means.",
        correction=f"Holm and Benjamini–Hochberg over the {len(pairs)} comparisons of this table."
        if len(pairs) > 1
        else "",
        test=describe_methods(pair.change for pair in pairs),
        sentence=_describe_result(data, pairs, corrected),
        notes=notes,
    )


def _list_columns(data: AnalysisData) -> list[ResultColumn]:
    signed, ends = ("signed_share", "points_interval") if data.is_share else ("signed", "interval")
    return [
        ResultColumn("a", "A"),
        ResultColumn("b", "B"),
        ResultColumn("items", "Common items", "count"),
        ResultColumn("mean_a", "A", "share" if data.is_share else "number"),
        ResultColumn("mean_b", "B", "share" if data.is_share else "number"),
        ResultColumn("difference", "B − A", signed),  # type: ignore[arg-type]
        ResultColumn("difference_ci", "95 % interval", ends),  # type: ignore[arg-type]
        ResultColumn("test", "Test"),
        ResultColumn("t", "t", "number"),
        ResultColumn("df", "df", "count"),
        ResultColumn("p", "p", "p"),
        ResultColumn("p_holm", "p (Holm)", "p"),
        ResultColumn("p_bh", "p (Benjamini–Hochberg)", "p"),
        ResultColumn("p_permutation", "p (permutation)", "p"),
        ResultColumn("p_wilcoxon", "p (Wilcoxon)", "p"),
        ResultColumn("effect", "Cohen's d", "signed"),
        ResultColumn("wins", "B higher", "count"),
        ResultColumn("losses", "B lower", "count"),
        ResultColumn("ties", "Equal", "count"),
    ]


def _build_rows(data: AnalysisData, pairs: list[ConditionPair], corrected: list[float]) -> list[dict[str, Any]]:
    """Return the rows of the pairs with the smallest p, at most MAX_PAIRS."""
    rates = benjamini_hochberg([pair.change.p_or_one for pair in pairs])
    listed = sorted(zip(pairs, corrected, rates, strict=True), key=lambda one: one[0].change.p_or_one)
    listed = listed[:MAX_PAIRS]  # Resampling is slow, so only the pairs of the table are resampled.
    differences = [data.scores.pair_conditions(pair.a, pair.b)[1] for pair, _, _ in listed]
    resampled = permutation_p_values(differences)
    return [
        {
            **_build_row(data, pair),
            "p_holm": p_holm,
            "p_bh": p_bh,
            "p_permutation": p if len(by_item) > 1 else None,
            "p_wilcoxon": wilcoxon_p(by_item),
        }
        for (pair, p_holm, p_bh), by_item, p in zip(listed, differences, resampled, strict=True)
    ]


def _build_row(data: AnalysisData, pair: ConditionPair) -> dict[str, Any]:
    change = pair.change
    return {
        "a": data.labels[pair.a],
        "b": data.labels[pair.b],
        "items": pair.items,
        "mean_a": pair.mean_a,
        "mean_b": pair.mean_b,
        "difference": change.mean,
        "difference_ci": (change.low, change.high) if change.low is not None else None,
        "test": change.test or change.reason,
        "t": change.t,
        "df": change.df,
        "p": change.p,
        "effect": pair.effect,
        "wins": pair.wins,
        "losses": pair.losses,
        "ties": pair.ties,
    }


def _describe_result(data: AnalysisData, pairs: list[ConditionPair], corrected: list[float]) -> str:
    """Return a sentence on the difference with the smallest p, with its uncertainty."""
    p, pair = min(zip(corrected, pairs, strict=True), key=lambda entry: entry[0])
    if p >= LEVEL:
        return "No pair of conditions differs by a test at the 5 % level after Holm's correction."
    change = pair.change
    high, low = (pair.b, pair.a) if change.mean > 0 else (pair.a, pair.b)
    size = abs(change.mean)
    text = f"{100 * size:.1f} percentage points" if data.is_share else statistic_format.format_number(size, 3)
    if change.low is None or change.high is None:
        interval_text = ""
    else:
        ends = sorted((abs(change.low), abs(change.high)))
        scale, unit = (100, " points") if data.is_share else (1, "")
        interval_text = f", 95 % interval {scale * ends[0]:.3g} to {scale * ends[1]:.3g}{unit}"
    return (
        f"{data.labels[high]} scores {text} above {data.labels[low]} on {pair.items} items"
        f"{interval_text} (p {statistic_format.format_p_equation(p)} after Holm's correction)."
    )


def _build_two_by_two_table(data: AnalysisData, pairs: list[ConditionPair]) -> ResultTable:
    rows: list[dict[str, Any]] = [
        {
            "a": data.labels[pair.a],
            "b": data.labels[pair.b],
            "both_right": table.both_right,
            "gained": table.gained,
            "lost": table.lost,
            "both_wrong": table.both_wrong,
            "p": table.p,
            "odds_ratio": table.odds_ratio,
            "odds_ratio_ci": (table.low, table.high) if table.high is not None else None,
        }
        for pair in pairs
        if (table := pair.two_by_two)
    ]
    return ResultTable(
        "right_and_wrong",
        "Right and wrong, item by item",
        [
            ResultColumn("a", "A"),
            ResultColumn("b", "B"),
            ResultColumn("both_right", "Both right", "count"),
            ResultColumn("gained", "Only B right", "count"),
            ResultColumn("lost", "Only A right", "count"),
            ResultColumn("both_wrong", "Both wrong", "count"),
            ResultColumn("p", "p (McNemar, exact)", "p"),
            ResultColumn("odds_ratio", "Odds ratio", "number"),
            ResultColumn("odds_ratio_ci", "95 % interval", "interval"),
        ],
        sorted(rows, key=lambda row: row["p"])[:MAX_PAIRS],
        formula="Odds ratio: only B right over only A right, with Clopper and Pearson's interval.",
        test="McNemar's exact test.",
        notes=["Items with one answer under both conditions."],
    )
