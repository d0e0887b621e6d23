"""Between conditions: paired differences over items, against a baseline or for all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from typing import Any

from grading_app.results import statistic_format
from grading_app.results.analysis.data import AnalysisData
from grading_app.results.scores import estimate_pair
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.condition_pairs import (
    ConditionPair,
    MissingVerdicts,
    benjamini_hochberg,
    compare_conditions,
    fill_worst_cases,
    permutation_p_values,
    wilcoxon_p,
)
from grading_app.statistics.fixed_items import (
    ITEMS_LIKE_THESE,
    THESE_ITEMS,
    FixedItemsChange,
    estimate_on_these_items,
)
from grading_app.statistics.intervals import describe_change_coverage
from grading_app.statistics.paired import PairedChange, describe_methods, holm, holm_with

MAX_PAIRS = 300  # Of more pairs, the table lists those with the smallest p.
LEVEL = 0.05


def build_condition_tables(data: AnalysisData) -> list[ResultTable]:
    """Return the tables; none for a single condition."""
    pairs, *of_other_measures = [
        [
            pair
            for a, b in list_condition_pairs(scores.conditions.tolist(), data.scope.baseline)
            if (pair := compare_conditions(scores, a, b, bounds))
        ]
        for scores, bounds in ((data.scores, data.bounds), *data.other_scores)
    ]
    if not pairs:
        return []
    tables = _build_difference_tables(data, pairs, [pair.change.p_or_one for pair in chain(*of_other_measures)])
    if any(pair.two_by_two for pair in pairs):
        tables.append(_build_two_by_two_table(data, pairs))
    return tables


def list_condition_pairs(conditions: Sequence[int], baseline: int | None) -> list[tuple[int, int]]:
    """Return the pairs (a, b) to compare: of the baseline with all others, or all pairs without one."""
    if baseline is not None and baseline in conditions:
        return [(baseline, other) for other in conditions if other != baseline]
    return list(combinations(conditions, 2))


def _build_difference_tables(
    data: AnalysisData, pairs: list[ConditionPair], other_p_values: list[float]
) -> list[ResultTable]:
    """Return the table that answers which conditions differ, and the other tests and counts of the same pairs."""
    family = [*(pair.change.p_or_one for pair in pairs), *other_p_values]
    rows = _build_rows(data, pairs, family)
    correction = _describe_family(data, len(pairs), len(family))
    notes = ["The unit of each test is the item. Repetitions are averaged first.", ITEMS_LIKE_THESE]
    if coverage := describe_change_coverage((pair.change for pair in pairs), is_share=data.is_share):
        notes.append(coverage)
    if len(pairs) > MAX_PAIRS:
        notes.append(
            f"Only the {MAX_PAIRS} of {len(pairs)} pairs with the smallest p are listed. "
            "Select a baseline or fewer conditions."
        )
    columns = _list_columns(data)
    elsewhere = {"items", "mean_a", "mean_b"}
    if not any(row["fixed_ci"] for row in rows):
        elsewhere |= {"fixed_ci", "p_fixed"}
    of_tests = [name for name in columns if name not in elsewhere]
    on_page = ("a", "b", "difference", "difference_ci", "p_holm", "test", "items")
    in_both = ("difference", "difference_ci", "p_holm", "test", "t", "df")
    of_differences = "a b difference difference_ci test p p_holm items mean_a mean_b effect"
    return [
        ResultTable(
            "differences",
            "Differences between conditions",
            [columns[name] for name in of_differences.split()],
            [{**row, "test": row["test_text"]} for row in rows],
            formula="B − A: mean over common items of the difference of cell means.",
            correction=correction,
            test=describe_methods(pair.change for pair in pairs),
            sentence=_describe_result(data, pairs, family),
            notes=notes,
            page_columns=on_page,
        ),
        ResultTable(
            "all_tests",
            "All tests of differences",
            [columns[name] for name in of_tests],
            rows,
            test=describe_methods(pair.change for pair in pairs),
            correction=correction,
            notes=[
                *([THESE_ITEMS] if "fixed_ci" in of_tests else []),
                "BH: Benjamini and Hochberg. Cohen's d: the mean over the SD of the differences.",
            ],
            page_columns=[name for name in of_tests if name not in in_both],
        ),
    ]


def _list_columns(data: AnalysisData) -> dict[str, ResultColumn]:
    """Return the columns of the tables of differences by their names, in the order of all tests."""
    measure, mean = data.measure, "Share" if data.is_share else "Mean"
    columns = (
        ResultColumn("a", "A"),
        ResultColumn("b", "B"),
        ResultColumn("difference", "B − A", measure.difference_column),
        ResultColumn("difference_ci", "95 % interval", measure.difference_interval_column),
        ResultColumn("fixed_ci", "95 %, these items", measure.difference_interval_column),
        ResultColumn("p_fixed", "p, these items", "p"),
        ResultColumn("test", "Test"),
        ResultColumn("t", "t", "number"),
        ResultColumn("df", "df", "count"),
        ResultColumn("p", "p", "p"),
        ResultColumn("p_holm", "p (Holm)", "p"),
        ResultColumn("p_bh", "p (BH)", "p"),
        ResultColumn("p_permutation", "p (permutation)", "p"),
        ResultColumn("p_wilcoxon", "p (Wilcoxon)", "p"),
        ResultColumn("wins", "B higher", "count"),
        ResultColumn("losses", "B lower", "count"),
        ResultColumn("ties", "Equal", "count"),
        ResultColumn("items", "Common items", "count"),
        ResultColumn("mean_a", f"{mean} of A", measure.mean_column),
        ResultColumn("mean_b", f"{mean} of B", measure.mean_column),
        ResultColumn("effect", "Cohen's d", "signed"),
    )
    return {column.name: column for column in columns}


def _describe_family(data: AnalysisData, n_pairs: int, n_tests: int) -> str:
    """Return over which tests p is corrected, and which other tests there are."""
    if data.other_scores:
        return (
            f"Holm and Benjamini–Hochberg over the {n_tests} comparisons of all {data.n_measures} measures; "
            f"{n_pairs} of them are in this table."
        )
    own = f"Holm and Benjamini–Hochberg over the {n_pairs} comparisons of this table." if n_pairs > 1 else ""
    others = data.n_measures - 1
    if not others:
        return own
    families = "other measure is a separate family" if others == 1 else f"{others} other measures are separate families"
    return f"{own} The {families} of tests.".strip()


def _estimate_alone(data: AnalysisData, pair: ConditionPair) -> FixedItemsChange | None:
    """Return the pair's difference on these items alone."""
    span = data.bounds[1] - data.bounds[0] if data.bounds else None
    return estimate_on_these_items(data.scores, pair.a, pair.b, span)


def _build_rows(data: AnalysisData, pairs: list[ConditionPair], family: list[float]) -> list[dict[str, Any]]:
    """Return the rows of the pairs with the smallest p, at most MAX_PAIRS. family: the p of all tests, these first."""
    n = len(pairs)
    listed = sorted(
        zip(pairs, holm(family)[:n], benjamini_hochberg(family)[:n], strict=True),
        key=lambda one: one[0].change.p_or_one,
    )
    listed = listed[:MAX_PAIRS]  # The further tests are slow, so only the pairs of the table have them.
    differences = [data.scores.pair_conditions(pair.a, pair.b)[1] for pair, *_ in listed]
    resampled = permutation_p_values(differences)
    return [
        {
            "a": data.labels[pair.a],
            "b": data.labels[pair.b],
            "items": pair.items,
            "mean_a": side_a.mean,
            "mean_b": side_b.mean,
            "difference": pair.change.mean,
            "difference_ci": (pair.change.low, pair.change.high) if pair.change.low is not None else None,
            "test": pair.change.test or pair.change.reason,
            "test_text": pair.change.test_text,
            "t": pair.change.t,
            "df": pair.change.df,
            "p": pair.change.p,
            "effect": pair.effect,
            "wins": pair.wins,
            "losses": pair.losses,
            "ties": pair.ties,
            "fixed_ci": (alone.low, alone.high) if alone and alone.low is not None else None,
            "p_fixed": alone.p if alone else None,
            "p_holm": p_holm,
            "p_bh": p_bh,
            "p_permutation": p if len(by_item) > 1 else None,
            "p_wilcoxon": wilcoxon_p(by_item),
        }
        for (pair, p_holm, p_bh), by_item, p in zip(listed, differences, resampled, strict=True)
        for side_a, side_b in [estimate_pair(data.scores, data.measure, pair.a, pair.b)]
        for alone in [_estimate_alone(data, pair)]
    ]


def _describe_result(data: AnalysisData, pairs: list[ConditionPair], family: list[float]) -> str:
    """Return sentences on the difference with the smallest p: its size, its uncertainty, and what it depends on."""
    corrected = holm(family)
    index = min(range(len(pairs)), key=lambda one: corrected[one])
    pair, p = pairs[index], corrected[index]
    if p >= LEVEL:
        by_p = sorted(range(len(pairs)), key=lambda one: family[one])[:MAX_PAIRS]
        check = next(filter(None, (_check_missing(data, pairs, family, one) for one in by_p)), "")
        return f"No pair of conditions differs by a test at the 5 % level after Holm's correction. {check}".strip()
    change = pair.change
    high, low = (pair.b, pair.a) if change.mean > 0 else (pair.a, pair.b)
    size = abs(change.mean)
    text = f"{100 * size:.1f} percentage points" if data.is_share else statistic_format.format_number(size)
    interval = f", 95 % interval {_format_ends(data, change, change.low, change.high)}" if change.method else ""
    sentences = [
        f"{data.labels[high]} scores {text} above {data.labels[low]} on {pair.items} items"
        f"{interval} (p {statistic_format.format_p_equation(p)} after Holm's correction)."
    ]
    alone = _estimate_alone(data, pair)
    if alone and alone.low is not None and alone.p is not None:
        sentences.append(
            f"This is for items like these. On these {pair.items} items alone, the interval is "
            f"{_format_ends(data, change, alone.low, alone.high)} (p {statistic_format.format_p_equation(alone.p)})."
        )
    else:
        sentences.append("This is for items like these.")
    return " ".join(filter(None, (*sentences, _check_missing(data, pairs, family, index))))


def _format_ends(data: AnalysisData, change: PairedChange, low: float | None, high: float | None) -> str:
    """Return the interval in the direction of the difference, for example `2.4 to 7.6 points`."""
    sign = 1 if change.mean > 0 else -1
    ends = sorted((sign * (low or 0.0), sign * (high or 0.0)))
    return statistic_format.format_difference_interval(ends[0], ends[1], data.is_share)


def _check_missing(data: AnalysisData, pairs: list[ConditionPair], family: list[float], index: int) -> str:
    """Return a sentence if the verdict on a pair after Holm's correction depends on answers without a score.

    Only the answers of this pair are filled: its p changes, the others stay.
    """
    pair, at_ends = pairs[index], data.scope.measure.is_rating
    others = sorted(family[:index] + family[index + 1 :])

    def find_verdict(compared: ConditionPair) -> int:
        p = holm_with(compared.change.p_or_one, others)
        return 0 if p >= LEVEL else 1 if compared.change.mean > 0 else -1

    tables = fill_worst_cases(data.scores.select_conditions([pair.a, pair.b]), data.bounds, at_ends=at_ends)
    filled = [compare_conditions(table, pair.a, pair.b, data.bounds) for table in tables]
    verdicts = MissingVerdicts(find_verdict(pair), tuple(find_verdict(one) for one in filled if one), at_ends)
    return verdicts.describe((data.labels[pair.a], data.labels[pair.b]))


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
