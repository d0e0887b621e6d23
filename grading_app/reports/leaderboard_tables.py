"""The leaderboard as tables for files, with the same numbers as the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from grading_app.reports import statistic_format
from grading_app.reports.frames import FACTORS
from grading_app.reports.leaderboard import LEVEL, BoardRow, FactorLead, Leaderboard
from grading_app.reports.result_table import ResultColumn, ResultTable, Row
from grading_app.results.scores import Measure
from grading_app.statistics.known_coverage import (
    describe_share_coverage,
    describe_skew_coverage,
    describe_uneven_coverage,
)
from grading_app.statistics.paired import STUDENT_INTERVAL

CompareUrl = Callable[[BoardRow, Measure], str]
BEST_NOTE = (
    "Best: higher than each other condition by a paired test over common items, p < 0.05 after Holm's correction over "
    "these tests, also if planned answers without a score count as wrong. Ratings have no best."
)


def describe_lead(board: Leaderboard, measure: Measure) -> str:
    """Return a sentence: which condition is ahead on a measure, by how much, and its test; "" without a comparison."""
    lead, labels = board.leads.get(measure.key), {row.condition: row.label for row in board.rows}
    if lead is None or not {lead.first, lead.second} <= set(labels):
        return ""
    first, second = labels[lead.first], labels[lead.second]
    size = statistic_format.format_difference(lead.difference, measure.is_share)
    ends = statistic_format.format_difference_interval(lead.low, lead.high, measure.is_share)
    interval = f" ({ends})" if lead.low is not None else ""
    test = "no test" if lead.p is None else f"{lead.test}, p {statistic_format.format_p_equation(lead.p)}"
    margin = f"by {size}{interval} over {second} on {lead.items} common items"
    if lead.difference <= 0:
        return f"{measure.label}: {first} has the highest mean, but is not ahead of {second} on their common items."
    if lead.is_best:
        return f"{measure.label}: {first} is the best, {margin}."
    if lead.verdict > lead.verdict_with_missing:
        outcome = f"then {second} is ahead" if lead.verdict_with_missing < 0 else "then no difference is significant"
        return f"{measure.label}: {first} is ahead {margin} ({test}). If answers without a score are wrong, {outcome}."
    if lead.verdict <= 0:
        return f"{measure.label}: {first} is ahead {margin}, but the difference is not significant ({test})."
    return f"{measure.label}: {first} is ahead {margin} ({test}), but not of every condition after Holm's correction."


def describe_factor_lead(found: FactorLead, measure: Measure, facets: Mapping[int, tuple[str, str, str]]) -> str:
    """Return a sentence: which model, prompt or sampler is ahead. facets: model, prompt and sampler by condition."""
    lead, change = found.lead, found.lead.pair.change
    first, second = facets[lead.first][found.factor], facets[lead.second][found.factor]
    size = statistic_format.format_difference(change.mean, measure.is_share)
    ends = statistic_format.format_difference_interval(change.low, change.high, measure.is_share)
    method = "" if change.method == STUDENT_INTERVAL else f", {change.method}"
    interval = f" (95 % interval {ends}{method})" if change.low is not None else ""
    beginning = f"{measure.label}, {FACTORS[found.factor].lower()}"
    averaged = f", each averaged over {lead.averaged} conditions" if lead.averaged > 1 else ""
    basis = f"on {lead.pair.items:,} items{averaged}"
    if change.mean == 0:
        return f"{beginning}: {first} and {second} have the same mean {basis}."
    if lead.p is None:
        reason = (
            f"{lead.pairs} pairs are too many to test here; Analysis tests the factor" if lead.pairs > 1 else "no test"
        )
        return f"{beginning}: {first} is {size}{interval} above {second} {basis} ({reason})."
    corrected = f", Holm's correction over {lead.pairs} pairs" if lead.pairs > 1 else ""
    test = f"{change.test_text}, p {statistic_format.format_p_equation(lead.p)}{corrected}"
    if lead.verdict(LEVEL) <= 0:
        return f"{beginning}: {first} is {size}{interval} above {second} {basis}, which is not significant ({test})."
    sentence = f"{beginning}: {first} is ahead of {second} by {size}{interval} {basis} ({test})."
    if found.verdict_with_missing < 0:
        return f"{sentence} If answers without a score are wrong, then {second} is ahead."
    if found.verdict_with_missing == 0:
        return f"{sentence} If answers without a score are wrong, then the difference is not significant."
    return sentence


def make_leaderboard_table(board: Leaderboard) -> ResultTable:
    """Return a table with a row for each condition: mean, interval, n and missing scores of each measure."""
    columns = [ResultColumn("condition", "Condition")]
    for measure in board.measures:
        columns += [
            ResultColumn(measure.key, measure.label, measure.mean_column),
            ResultColumn(f"{measure.key}_ci", "95 % interval", measure.interval_column),
            ResultColumn(f"{measure.key}_n", "n", "count"),
            ResultColumn(f"{measure.key}_missing", "No score", "count"),
            ResultColumn(f"{measure.key}_missing_reasons", "Reasons"),
            *([] if measure.is_rating else [ResultColumn(f"{measure.key}_best", "Best")]),
        ]
    columns += [
        ResultColumn("cost_usd", "Cost", "money"),
        ResultColumn("input_tokens", "Input tokens", "count"),
        ResultColumn("output_tokens", "Output tokens", "count"),
        ResultColumn("latency_s", "Median latency (s)", "number"),
    ]
    notes = (
        describe_share_coverage(board.single_answer_shares),
        describe_uneven_coverage(board.share_counts),
        describe_skew_coverage(board.without_scale),
    )
    return ResultTable(
        "leaderboard",
        "Leaderboard",
        columns,
        [_make_row(board, row) for row in board.rows],
        formula="Mean or share over answers, with standard errors clustered by item.",
        correction=BEST_NOTE,
        notes=[note for note in notes if note],
    )


def _make_row(board: Leaderboard, row: BoardRow) -> dict[str, object]:
    values: dict[str, object] = {
        "condition": row.label,
        "cost_usd": row.cost_usd,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "latency_s": row.latency_s,
    }
    for measure in board.measures:
        score = row.scores[measure.key]
        values |= {
            measure.key: score.mean,
            f"{measure.key}_ci": score.interval,
            f"{measure.key}_n": score.n,
            f"{measure.key}_missing": score.missing,
            f"{measure.key}_missing_reasons": score.missing_text,
            f"{measure.key}_best": "best" if board.is_best(row, measure) else "",
        }
    return values


def make_baseline_table(board: Leaderboard, measure: Measure, make_url: CompareUrl) -> ResultTable | None:
    """Return the differences from the baseline on one measure; None without a baseline.

    make_url: return the address of the comparison of a row with the baseline.
    """
    rows = [row for row in board.rows if measure.key in row.baseline]
    if not rows:
        return None
    baseline = next(row.label for row in board.rows if row.condition == board.baseline)
    return ResultTable(
        f"baseline-{measure.key.replace(':', '-')}",
        f"{measure.label}: difference from {baseline}",
        [
            ResultColumn("condition", "Condition"),
            ResultColumn("items", "Common items", "count"),
            ResultColumn("mean_baseline", "Baseline", measure.mean_column),
            ResultColumn("mean", "Condition", measure.mean_column),
            ResultColumn("difference", "Difference", measure.difference_column),
            ResultColumn("difference_ci", "95 % interval", measure.difference_interval_column),
            ResultColumn("p", "p", "p"),
            ResultColumn("p_holm", "p (Holm)", "p"),
            ResultColumn("test", "Test"),
            ResultColumn("wins", "Wins", "count"),
            ResultColumn("losses", "Losses", "count"),
            ResultColumn("ties", "Ties", "count"),
        ],
        [_make_baseline_row(row, measure) for row in rows],
        formula="Mean over common items of the difference of item means. Wins, losses and ties are items, by its sign.",
        correction=f"Holm over the {len(rows)} comparisons of this table.",
        links=[dict.fromkeys(("difference", "wins", "losses", "ties"), make_url(row, measure)) for row in rows],
    )


def _make_baseline_row(row: BoardRow, measure: Measure) -> Row:
    comparison = row.baseline[measure.key]
    return {
        "condition": row.label,
        "items": comparison.items,
        "mean_baseline": comparison.mean_baseline,
        "mean": comparison.mean,
        "difference": comparison.difference,
        "difference_ci": (comparison.low, comparison.high) if comparison.low is not None else None,
        "p": comparison.p,
        "p_holm": comparison.corrected,
        "test": comparison.test,
        "wins": comparison.wins,
        "losses": comparison.losses,
        "ties": comparison.ties,
    }
