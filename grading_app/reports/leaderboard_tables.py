"""The leaderboard as tables for files, with the same numbers as the page."""

from __future__ import annotations

from collections.abc import Callable

from grading_app.reports import statistic_format
from grading_app.reports.leaderboard import LEVEL, BoardMeasure, BoardRow, Leaderboard
from grading_app.reports.result_table import Kind, ResultColumn, ResultTable, Row
from grading_app.statistics.known_coverage import describe_share_coverage

CompareUrl = Callable[[BoardRow, BoardMeasure], str]
BEST_NOTE = (
    "Best: higher than each other condition by a paired test over common items, p < 0.05 after Holm's correction over "
    "these tests. Ratings have no best."
)


def describe_lead(board: Leaderboard, measure: BoardMeasure) -> str:
    """Return which condition is ahead on a measure, by how much and how surely; "" where no two can be compared."""
    lead, labels = measure.lead, {row.condition: row.label for row in board.rows}
    if lead is None or not {lead.first, lead.second} <= set(labels):
        return ""
    first, second = labels[lead.first], labels[lead.second]
    amount = statistic_format.format_points if measure.is_share else statistic_format.format_number
    size = amount(lead.difference)
    between = statistic_format.format_points_interval if measure.is_share else statistic_format.format_interval
    interval = f" ({between(lead.low, lead.high)})" if lead.low is not None else ""
    p = statistic_format.format_p(lead.p)
    test = "no test" if lead.p is None else f"{lead.test}, p {p if p.startswith('<') else f'= {p}'}"
    ahead = f"by {size}{interval} over {second} on {lead.items} common items"
    if lead.difference <= 0:
        return f"{measure.label}: {first} has the highest mean, but is not ahead of {second} on their common items."
    if lead.is_best:
        return f"{measure.label}: {first} is the best, {ahead}."
    if lead.p is None or lead.p >= LEVEL:
        return f"{measure.label}: {first} is ahead {ahead}, but the difference is not significant ({test})."
    return f"{measure.label}: {first} is ahead {ahead} ({test}), but not of every condition after Holm's correction."


def make_leaderboard_table(board: Leaderboard) -> ResultTable:
    """Return one row for each condition, with mean, interval, n and missing of each measure."""
    columns = [ResultColumn("condition", "Condition")]
    for measure in board.measures:
        mean: Kind = "share" if measure.is_share else "number"
        ends: Kind = "share_interval" if measure.is_share else "interval"
        columns += [
            ResultColumn(measure.key, measure.label, mean),
            ResultColumn(f"{measure.key}_ci", "95 % interval", ends),
            ResultColumn(f"{measure.key}_n", "n", "count"),
            ResultColumn(f"{measure.key}_missing", "No score", "count"),
            *([] if measure.is_rating else [ResultColumn(f"{measure.key}_best", "Best")]),
        ]
    columns += [
        ResultColumn("cost_usd", "Cost", "money"),
        ResultColumn("input_tokens", "Input tokens", "count"),
        ResultColumn("output_tokens", "Output tokens", "count"),
        ResultColumn("latency_s", "Median latency (s)", "number"),
    ]
    return ResultTable(
        "leaderboard",
        "Leaderboard",
        columns,
        [_make_row(board, row) for row in board.rows],
        formula="Mean or share over answers, with standard errors clustered by item.",
        correction=BEST_NOTE,
        notes=list(filter(None, [describe_share_coverage(board.shares_asked_once)])),
    )


def _make_row(board: Leaderboard, row: BoardRow) -> dict[str, object]:
    found: dict[str, object] = {
        "condition": row.label,
        "cost_usd": row.cost_usd,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "latency_s": row.latency_s,
    }
    for measure in board.measures:
        score = row.scores[measure.key]
        found |= {
            measure.key: score.mean,
            f"{measure.key}_ci": (score.low, score.high) if score.low is not None else None,
            f"{measure.key}_n": score.n,
            f"{measure.key}_missing": score.missing,
            f"{measure.key}_best": "best" if score.is_best else "",
        }
    return found


def make_baseline_table(board: Leaderboard, measure: BoardMeasure, address_of: CompareUrl) -> ResultTable | None:
    """Return the differences of one measure from the baseline; None without one. `address_of` leads to a comparison."""
    rows = [row for row in board.rows if measure.key in row.baseline]
    if not rows:
        return None
    baseline = next(row.label for row in board.rows if row.condition == board.baseline)
    mean: Kind = "share" if measure.is_share else "number"
    signed: Kind = "signed_share" if measure.is_share else "signed"
    return ResultTable(
        f"baseline-{measure.key.replace(':', '-')}",
        f"{measure.label}: difference from {baseline}",
        [
            ResultColumn("condition", "Condition"),
            ResultColumn("items", "Common items", "count"),
            ResultColumn("mean_baseline", "Baseline", mean),
            ResultColumn("mean", "Condition", mean),
            ResultColumn("difference", "Difference", signed),
            ResultColumn("difference_ci", "95 % interval", "points_interval" if measure.is_share else "interval"),
            ResultColumn("p", "p", "p"),
            ResultColumn("p_holm", "p (Holm)", "p"),
            ResultColumn("test", "Test"),
            ResultColumn("wins", "Wins", "count"),
            ResultColumn("losses", "Losses", "count"),
            ResultColumn("ties", "Ties", "count"),
        ],
        [_make_baseline_row(row, measure) for row in rows],
        formula="Mean over common items of the difference of item means. Wins, losses, ties: items by the sign of it.",
        correction=f"Holm over the {len(rows)} comparisons of this table.",
        links=[dict.fromkeys(("difference", "wins", "losses", "ties"), address_of(row, measure)) for row in rows],
    )


def _make_baseline_row(row: BoardRow, measure: BoardMeasure) -> Row:
    found = row.baseline[measure.key]
    return {
        "condition": row.label,
        "items": found.items,
        "mean_baseline": found.mean_baseline,
        "mean": found.mean,
        "difference": found.difference,
        "difference_ci": (found.low, found.high) if found.low is not None else None,
        "p": found.p,
        "p_holm": found.corrected,
        "test": found.test,
        "wins": found.wins,
        "losses": found.losses,
        "ties": found.ties,
    }
