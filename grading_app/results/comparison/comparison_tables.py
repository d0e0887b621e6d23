"""The result of a comparison as tables, and in one sentence."""

from __future__ import annotations

from collections.abc import Callable

from grading_app.results import statistic_format
from grading_app.results.comparison.condition_scores import PairedScores
from grading_app.results.scores import Measure
from grading_app.results.table import ResultColumn, ResultTable, Row
from grading_app.statistics.condition_pairs import ConditionPair, PairOfDesign, TwoByTwo
from grading_app.statistics.fixed_items import ITEMS_LIKE_THESE, THESE_ITEMS
from grading_app.statistics.intervals import describe_change_coverage
from grading_app.statistics.paired import EXACT_MCNEMAR, MCNEMAR, SIGN_FLIPS, STUDENT, describe_methods
from grading_app.statistics.reference import equivalence_p

LEVEL = 0.05
TESTS = {
    SIGN_FLIPS: "Exact sign-flip test of the items' differences.",
    STUDENT: "Paired t-test of the items' differences.",
    MCNEMAR: "McNemar's score test.",
    EXACT_MCNEMAR: "McNemar's exact test, because few items differ.",
}


COUNTS = {"wins": "B higher", "losses": "B lower", "ties": "Equal"}  # Of items.


def make_comparison_tables(
    paired: PairedScores,
    pair: ConditionPair,
    names: tuple[str, str],
    margin: float | None,
    make_url: Callable[[str], str],
    design: PairOfDesign | None = None,
) -> list[ResultTable]:
    """Return the tables of the difference and, for single answers that are right or wrong, the 2 x 2 table.

    make_url: return the address of the items that match a filter. design: the pair's place in its design.
    """
    change, measure, row = pair.change, paired.measure, _build_row(paired, pair, margin, design)
    answer = ResultTable(
        "difference",
        "Difference",
        [
            ResultColumn("difference", "B − A", measure.difference_column),
            ResultColumn("difference_ci", "95 % interval", measure.difference_interval_column),
            ResultColumn("test", "Test"),
            ResultColumn("p", "p", "p"),
            *([ResultColumn("p_holm", "p (Holm)", "p")] if design else []),
            *([ResultColumn("equivalence_p", "p of equivalence", "p")] if margin else []),
            ResultColumn("items", "Common items", "count"),
            ResultColumn("mean_a", f"A: {names[0]}", measure.mean_column),
            ResultColumn("mean_b", f"B: {names[1]}", measure.mean_column),
            ResultColumn("effect", "Cohen's d", "signed"),
        ],
        [row],
        formula="B − A: mean over common items of the difference of the items' means.",
        test=" ".join(filter(None, (TESTS.get(change.test), describe_methods([change])))),
        sentence=describe_result(paired, pair, names, design),
        notes=[
            *([change.reason.capitalize() + "."] if change.reason else []),
            *([_describe_design(design)] if design else []),
            ITEMS_LIKE_THESE,
            "Repetitions are averaged, so an item counts once. Cohen's d: the mean over the SD of the differences.",
            *filter(None, [describe_change_coverage([change], is_share=measure.is_share)]),
            _describe_equivalence(pair, margin, measure),
        ],
        links=[{"items": make_url("all")}],
        measure=measure.key,
        measure_label=measure.label,
    )
    fixed_columns = [
        ResultColumn("fixed_ci", "95 %, these items", measure.difference_interval_column),
        ResultColumn("p_fixed", "p, these items", "p"),
    ]
    others = ResultTable(
        "all_tests",
        "All tests of the difference",
        [
            ResultColumn("difference", "B − A", measure.difference_column),
            ResultColumn("difference_ci", "95 % interval", measure.difference_interval_column),
            *(fixed_columns if row["fixed_ci"] else []),
            ResultColumn("test", "Test"),
            ResultColumn("t", "t", "number"),
            ResultColumn("df", "df", "count"),
            ResultColumn("p", "p", "p"),
            *(ResultColumn(name, label, "count") for name, label in COUNTS.items()),
        ],
        [row],
        test=describe_methods([change]),
        notes=[THESE_ITEMS] if row["fixed_ci"] else [],
        links=[{"wins": make_url("gained"), "losses": make_url("lost")}],
        measure=measure.key,
        measure_label=measure.label,
        page_columns=("fixed_ci", "p_fixed", "t", "df", *COUNTS),  # The others are in the table above.
    )
    return [answer, others, *([_make_two_by_two_table(pair.two_by_two, names, make_url)] if pair.two_by_two else [])]


def _build_row(paired: PairedScores, pair: ConditionPair, margin: float | None, design: PairOfDesign | None) -> Row:
    """Return the numbers of a comparison, of which each table shows a part."""
    change, alone = pair.change, paired.on_these_items
    side_a, side_b = paired.sides
    return {
        "items": pair.items,
        "mean_a": side_a.mean,
        "mean_b": side_b.mean,
        "difference": change.mean,
        "difference_ci": (change.low, change.high) if change.low is not None else None,
        "test": change.test or change.reason,
        "t": change.t,
        "df": change.df,
        "p": change.p,
        "p_holm": design.p if design else None,
        "fixed_ci": (alone.low, alone.high) if alone and alone.low is not None else None,
        "p_fixed": alone.p if alone else None,
        "effect": pair.effect,
        "wins": pair.wins,
        "losses": pair.losses,
        "ties": pair.ties,
        "equivalence_p": _compute_equivalence_p(pair, margin),
    }


def _compute_equivalence_p(pair: ConditionPair, margin: float | None) -> float | None:
    """Return the p of two one-sided tests (TOST); None without a margin, or if the differences do not vary."""
    if not margin or not pair.change.se or pair.items < 2:
        return None
    return equivalence_p(pair.items, pair.change.mean, pair.change.se, margin)


def _describe_equivalence(pair: ConditionPair, margin: float | None, measure: Measure) -> str:
    if not margin:
        unit = "shares (0.05 for 5 percentage points)" if measure.is_share else "points of the scale"
        return f"For an equivalence test, enter the largest negligible difference as the margin, in {unit}."
    p = _compute_equivalence_p(pair, margin)
    test = f"Equivalence: two one-sided t-tests within ±{margin:g} (Schuirmann 1987)"
    if p is None:
        return f"{test} need differences that vary."
    verdict = "the sides are equivalent at the 5 % level" if p < LEVEL else "equivalence is not shown"
    return f"{test}: {verdict}."


def _make_two_by_two_table(counts: TwoByTwo, names: tuple[str, str], make_url: Callable[[str], str]) -> ResultTable:
    rows = [
        {"a": "A right", "right": counts.both_right, "wrong": counts.lost, "sum": counts.both_right + counts.lost},
        {"a": "A wrong", "right": counts.gained, "wrong": counts.both_wrong, "sum": counts.gained + counts.both_wrong},
        {
            "a": "Sum",
            "right": counts.both_right + counts.gained,
            "wrong": counts.lost + counts.both_wrong,
            "sum": counts.n,
        },
    ]
    p = statistic_format.format_p_equation(counts.p)
    ratio = "not defined" if counts.odds_ratio is None else statistic_format.format_number(counts.odds_ratio)
    high = "unbounded" if counts.high is None else statistic_format.format_number(counts.high)
    return ResultTable(
        "right_and_wrong",
        "Right and wrong, item by item",
        [
            ResultColumn("a", f"A: {names[0]}"),
            ResultColumn("right", "B right", "count"),
            ResultColumn("wrong", "B wrong", "count"),
            ResultColumn("sum", "Sum", "count"),
        ],
        rows,
        formula="Odds ratio: only B right over only A right, with Clopper and Pearson's 95 % interval.",
        test="McNemar's exact test.",
        sentence=f"McNemar's exact test: p {p}, odds ratio {ratio}, "
        f"95 % interval {statistic_format.format_number(counts.low)} to {high}.",
        notes=["Items with one answer on both sides.", f"B: {names[1]}."],
        links=[
            {"right": make_url("both_right"), "wrong": make_url("lost")},
            {"right": make_url("gained"), "wrong": make_url("both_wrong")},
            {},
        ],
    )


def _describe_design(design: PairOfDesign) -> str:
    if design.p is None:
        return f"One of {design.pairs:,} pairs of this design. Analysis corrects p for all of them."
    return (
        f"One of {design.pairs} pairs of this design. p (Holm) is corrected over them, as in Analysis and the report."
    )


def describe_result(
    paired: PairedScores,
    pair: ConditionPair,
    names: tuple[str, str],
    design: PairOfDesign | None = None,
) -> str:
    """Return sentences: which side is better and by how much, with interval and tests, and what this depends on."""
    change, is_share = pair.change, paired.measure.is_share
    test = "no test for one item"
    if change.test and change.p is not None:
        test = f"{change.test_text}, p {statistic_format.format_p_equation(change.p)}"
        if design and design.p is not None:
            corrected = statistic_format.format_p_equation(design.p)
            test += f"; p {corrected} after Holm's correction over the {design.pairs} pairs of the design"
    scope = f"on {pair.items} common item{'' if pair.items == 1 else 's'} ({test})"
    b_is_higher = change.mean > 0
    high, low = (names[1], names[0]) if b_is_higher else names
    amount = _format_amount(abs(change.mean), is_share) + _format_interval(
        change.low, change.high, is_share, 1 if b_is_higher else -1
    )
    if change.p is None or change.p >= LEVEL:
        amount = _format_amount(change.mean, is_share, signed=True)
        interval = _format_interval(change.low, change.high, is_share, 1)
        result = f"No significant difference: B − A is {amount}{interval} {scope}."
    elif design and (design.p is None or design.p >= LEVEL):
        result = f"{high} is {amount} higher than {low} {scope}. " + (
            "This pair is significant only without the correction."
            if design.p is not None
            else f"The p is not corrected for the {design.pairs:,} pairs of the design."
        )
    elif paired.measure.is_rating:
        result = f"{high} rates {amount} higher than {low} {scope}."
    else:
        result = f"{high} beats {low} by {amount} {scope}."
    estimand, alone = "This is for items like these.", paired.on_these_items
    if alone is not None and alone.low is not None and alone.p is not None:
        interval = _format_interval(alone.low, alone.high, is_share, 1)
        p = statistic_format.format_p_equation(alone.p)
        estimand += f" On these items alone, the interval of B − A is{interval} (p {p})."
    missing = paired.check_missing(pair).describe(names)
    return " ".join(filter(None, (result, estimand, missing)))


def _format_amount(value: float, is_share: bool, *, signed: bool = False) -> str:
    text = statistic_format.format_points(value) if is_share else statistic_format.format_number(value)
    return statistic_format.add_sign(text) if signed else text


def _format_interval(low: float | None, high: float | None, is_share: bool, sign: int) -> str:
    if low is None or high is None:
        return ""
    low, high = sorted((sign * low, sign * high))
    scale, places = (100, 1) if is_share else (1, 2)
    texts = [statistic_format.format_number(scale * end, places) for end in (low, high)]
    return f" [{texts[0]}, {texts[1]}]"
