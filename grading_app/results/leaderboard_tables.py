"""The tables of the results page: conditions by score, closeness to people, baseline and outcome."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from grading_app.results.frames import Outcomes
from grading_app.results.leaderboard import BoardRow, Leaderboard
from grading_app.results.scores import ConditionScore, Measure
from grading_app.results.table import ResultColumn, ResultTable, Row
from grading_app.statistics.intervals import (
    STUDENT,
    describe_change_coverage,
    describe_correlation_coverage,
    describe_share_coverage,
    describe_skew_coverage,
    describe_uneven_coverage,
)
from grading_app.statistics.paired import describe_methods
from runs_app.models import Experiment, Wave

CompareUrl = Callable[[BoardRow, Measure], str]
NUMBER_IN_METHOD = re.compile(r" (at an effective n of|over) [\d.,]+( items)?")
BEST_NOTE = (
    "Best: higher than each other condition by a paired test over common items, p < .05 after Holm's correction over "
    "these tests, also if planned answers without a score count as wrong. Ratings have no best."
)


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
    methods = {
        measure.label: describe_intervals(row.scores[measure.key] for row in board.rows) for measure in board.measures
    }
    rows = []
    for row in board.rows:
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
        rows.append(values)
    return ResultTable(
        "leaderboard",
        "Scores by condition",
        columns,
        rows,
        formula=" ".join(
            ["Mean or share over answers.", *(f"{name}: {text}" for name, text in methods.items() if text)]
        ),
        correction=BEST_NOTE,
        notes=[*(str(extreme) for _, extreme in board.extremes), *describe_coverage(board, board.measures)],
    )


def describe_coverage(board: Leaderboard, measures: Iterable[Measure]) -> list[str]:
    """Return notes on the intervals of these measures that cover less than they say in simulations."""
    shown = list(measures)
    scores = [(row.scores[measure.key], measure) for row in board.rows for measure in shown]
    shares = [(one.n, one.items) for one, measure in scores if measure.is_share and one.low is not None]
    notes = (
        describe_share_coverage([items for n, items in shares if n == items]),
        describe_uneven_coverage(shares),
        describe_skew_coverage([one.items for one, _ in scores if one.method.startswith(STUDENT)]),
    )
    return [note for note in notes if note]


class BoardLinks:
    """The addresses behind the numbers of a leaderboard."""

    def __init__(self, board: Leaderboard, experiment: Experiment, wave: Wave | None, missing: str) -> None:
        self.board, self.experiment, self.wave, self.missing = board, experiment, wave, missing

    def compare(self, row: BoardRow, measure: Measure) -> str:
        """Return the address that compares a condition with the baseline, or with the best other condition."""
        others = [one for one in self.board.rows if one.condition != row.condition]
        if not others:
            return ""
        best = max(others, key=lambda one: -1e300 if (mean := one.scores[measure.key].mean) is None else mean)
        reference = next((one for one in others if one.condition == self.board.baseline), best)
        number = [self.wave.number] if self.wave else []
        a, b = (":".join(map(str, (self.experiment.slug, one.condition, *number))) for one in (reference, row))
        query = {"a": a, "b": b, "measure": measure.key} | ({"missing": self.missing} if self.missing else {})
        return f"{reverse('compare')}?{urlencode(query)}"

    def list_trials(self, row: BoardRow | None, measure: Measure) -> str:
        """Return the address of the trials behind n, including trials without a score. row: None for all conditions."""
        of_condition = {"condition": row.condition} if row else {}
        query: dict[str, Any] = {"experiment": self.experiment.slug, **of_condition, "status": "done"}
        if measure.dimension is not None:
            query["dimension"] = measure.dimension
        if measure.grade_condition is not None:
            query["graded_by"] = measure.grade_condition
        return f"{reverse('trial_list')}?{urlencode(query)}"


def make_condition_table(
    board: Leaderboard, measure: Measure, links: BoardLinks, *, is_first: bool = False
) -> ResultTable:
    """Return a row for each condition: its score on one measure with the interval, and the answers behind it.

    is_first: the table of the page's first measure. It has costs if they differ, and not what `make_effort_table` has.
    """
    scores = [row.scores[measure.key] for row in board.rows]
    has_best = any(board.is_best(row, measure) for row in board.rows)
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("score", measure.label, measure.mean_column),
        ResultColumn("score_ci", "95 % interval", measure.interval_column),
        *([] if is_first else _list_spread_columns(measure)),
        ResultColumn("n", "Answers scored", "count_of"),
        *([ResultColumn("missing", "Without a score")] if any(one.missing for one in scores) else []),
        *([ResultColumn("best", "Rank")] if has_best else []),
        *([ResultColumn("cost_per_answer", "Cost per answer", "money")] if is_first and costs_differ(board) else []),
    ]
    rows = [
        {
            "condition": row.label,
            "score": score.mean,
            "score_ci": score.interval,
            "sd": score.sd,
            "se": score.se,
            "n": (score.scored, score.planned),
            "missing": score.missing_text,
            "best": "Best" if board.is_best(row, measure) else "",
            "cost_per_answer": row.cost_per_answer,
        }
        for row, score in zip(board.rows, scores, strict=True)
    ]
    return ResultTable(
        "conditions" if is_first else f"conditions-{measure.key.replace(':', '-')}",
        f"{measure.label} (primary measure)" if measure.key == board.primary else measure.label,
        columns,
        rows,
        formula=describe_intervals(scores),
        correction=BEST_NOTE if has_best else "",
        notes=[*describe_coverage(board, [measure]), *_describe_missing(scores)],
        links=[{"score": links.compare(row, measure), "n": links.list_trials(row, measure)} for row in board.rows],
        is_sortable=True,
    )


def describe_intervals(scores: Iterable[ConditionScore]) -> str:
    """Return which method the intervals of these means are from, and why others have none."""
    found = list(scores)
    methods = dict.fromkeys(NUMBER_IN_METHOD.sub("", one.method) for one in found if one.low is not None)
    reasons = dict.fromkeys(one.reason for one in found if one.low is None and one.reason)
    sentences = [f"Intervals on items like these: {', '.join(methods)}, clustered by item."] if methods else []
    return " ".join([*sentences, *([f"No interval: {'; '.join(reasons)}."] if reasons else [])])


def _list_spread_columns(measure: Measure) -> list[ResultColumn]:
    """Return the columns of SD and standard error; a share has no SD."""
    if measure.is_share:
        return [ResultColumn("se", "SE by item", "points")]
    return [ResultColumn("sd", "SD", "number"), ResultColumn("se", "SE by item", "number", 3)]


def _describe_missing(scores: Iterable[ConditionScore]) -> list[str]:
    found = list(scores)
    if any(one.filled for one in found):
        return ["Answers without a score count as the lowest score here."]
    return ["Answers without a score are excluded."] if any(one.missing for one in found) else []


def make_closeness_table(board: Leaderboard, links: BoardLinks) -> ResultTable:
    """Return a row for each rated dimension with norms and each condition: how close its ratings are to people."""
    rated = board.rated_with_norms
    pairs = [(measure, row) for measure in rated for row in board.rows]
    scores = [row.scores[measure.key] for measure, row in pairs]
    has_ceiling = any(one.ceiling is not None for one in board.closeness.values())
    columns = [
        *([ResultColumn("dimension", "Dimension")] if len(rated) > 1 else []),
        ResultColumn("condition", "Condition"),
        ResultColumn("r", "r with people", "coefficient"),
        ResultColumn("r_ci", "95 % interval", "coefficient_interval"),
        *([ResultColumn("ceiling", "Ceiling", "coefficient")] if has_ceiling else []),
        ResultColumn("error", "Mean error", "number"),
        ResultColumn("bias", "Bias", "signed"),
        ResultColumn("score", "Mean rating", "number"),
        ResultColumn("score_ci", "95 % interval", "interval"),
        ResultColumn("n", "Rated", "count_of"),
        *([ResultColumn("missing", "Not rated")] if any(one.missing for one in scores) else []),
    ]
    of_r = describe_correlation_coverage(
        near.items for one in board.closeness.values() for near in one.conditions.values() if near.low is not None
    )
    rows = []
    for (measure, row), score in zip(pairs, scores, strict=True):
        closeness = board.closeness[measure.key]
        near = closeness.conditions.get(row.condition)
        rows.append(
            {
                "dimension": measure.label,
                "condition": row.label,
                "r": near.r if near else None,
                "r_ci": (near.low, near.high) if near and near.low is not None else None,
                "ceiling": closeness.ceiling,
                "error": near.error if near else None,
                "bias": near.bias if near else None,
                "score": score.mean,
                "score_ci": score.interval,
                "n": (score.scored, score.planned),
                "missing": score.missing_text,
            }
        )
    ceiling = "Ceiling: the highest r that ratings can have with these norms on average. " if has_ceiling else ""
    methods = dict.fromkeys(NUMBER_IN_METHOD.sub("", one.method) for one in scores if one.method)
    return ResultTable(
        "conditions",
        "Closeness to people",
        columns,
        rows,
        formula="r: correlation of item means with the means of people. Mean error: mean absolute difference of "
        f"item means, in scale points. Bias: above zero if the model rates higher than people. {ceiling}"
        "Intervals on items like these: of r, the wider of Fisher's and the jackknife's; of a mean rating, "
        f"{', '.join(methods) or 'none'}.",
        notes=[note for note in (of_r, *describe_coverage(board, rated), *_describe_missing(scores)) if note],
        links=[{"score": links.compare(row, measure), "n": links.list_trials(row, measure)} for measure, row in pairs],
        is_sortable=True,
    )


def make_effort_table(board: Leaderboard) -> ResultTable:
    """Return the spread of the first measure, and tokens, time and cost of each condition."""
    measure, has_cost_above = board.measures[0], costs_differ(board) and not board.rated_with_norms
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("items", "Items", "count"),
        *_list_spread_columns(measure),
        ResultColumn("cost_usd", "Cost", "money"),
        *([] if has_cost_above else [ResultColumn("cost_per_answer", "Cost per answer", "money")]),
        ResultColumn("input_tokens", "Input tokens", "count"),
        ResultColumn("output_tokens", "Output tokens", "count"),
        ResultColumn("latency_s", "Median latency (s)", "number"),
    ]
    rows = [
        {
            "condition": row.label,
            "items": row.scores[measure.key].items,
            "sd": row.scores[measure.key].sd,
            "se": row.scores[measure.key].se,
            "cost_usd": row.cost_usd,
            "cost_per_answer": row.cost_per_answer,
            "input_tokens": row.input_tokens,
            "output_tokens": row.output_tokens,
            "latency_s": row.latency_s,
        }
        for row in board.rows
    ]
    return ResultTable(
        "effort",
        f"Spread of {measure.label}, cost, tokens and time",
        columns,
        rows,
        formula="Costs include repeated and failed calls. Latency does not include reused answers.",
        is_sortable=True,
    )


def costs_differ(board: Leaderboard) -> bool:
    """Return True if conditions have known costs per answer of which one is at least 1 % above another."""
    costs = [row.cost_per_answer for row in board.rows if row.cost_per_answer is not None]
    return len(costs) > 1 and max(costs) > 1.01 * min(costs)


def make_baseline_table(board: Leaderboard, measure: Measure, make_url: CompareUrl) -> ResultTable | None:
    """Return the differences from the baseline on one measure; None without a baseline.

    make_url: return the address of the comparison of a row with the baseline.
    """
    compared = [row for row in board.rows if measure.key in row.baseline]
    if not compared:
        return None
    rows: list[Row] = [
        {
            "condition": row.label,
            "items": pair.items,
            "mean_baseline": comparison.mean_baseline,
            "mean": comparison.mean,
            "difference": change.mean,
            "difference_ci": (change.low, change.high) if change.low is not None else None,
            "p": change.p,
            "p_holm": comparison.corrected,
            "test": change.test_text,
            "wins": pair.wins,
            "losses": pair.losses,
            "ties": pair.ties,
        }
        for row in compared
        for comparison in [row.baseline[measure.key]]
        for pair in [comparison.pair]
        for change in [pair.change]
    ]
    changes = [row.baseline[measure.key].pair.change for row in compared]
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
        rows,
        formula="Mean over common items of the difference of item means, with the interval on items like these. Wins, "
        "losses and ties are items, by its sign.",
        correction=f"Holm over the {len(rows)} comparisons of this table.",
        test=describe_methods(changes),
        notes=[note for note in [describe_change_coverage(changes, is_share=measure.is_share)] if note],
        links=[dict.fromkeys(("difference", "wins", "losses", "ties"), make_url(row, measure)) for row in compared],
    )


FILTERS: Mapping[str, Mapping[str, str]] = {
    "trials": {},
    "done": {"status": "done"},
    "failed": {"status": "failed"},
    "unread": {"unparsed": "true"},
    "empty": {"empty": "true"},
    "truncated": {"truncated": "true"},
    "refused": {"refused": "true"},
}
"""By column: the filters with which the list of trials shows the counted trials."""


def make_outcome_table(
    outcomes: Sequence[Outcomes], labels: Mapping[int, str], *, is_rated: bool, slug: str = ""
) -> ResultTable:
    """Return the counts of each condition. is_rated: an answer can lack a rating.

    slug: of the experiment, if counts are to lead to their trials.
    """
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("trials", "Trials", "count"),
        ResultColumn("done", "Done", "count"),
        ResultColumn("failed", "Failed", "count"),
        ResultColumn("open", "Pending", "count"),
        ResultColumn("empty", "Empty", "count"),
        ResultColumn("truncated", "Truncated", "count"),
        ResultColumn("refused", "Refused", "count"),
        *([ResultColumn("unread", "No rating found", "count")] if is_rated else []),
    ]
    names = [column.name for column in columns[1:]]
    rows = [
        {"condition": labels.get(one.condition, "")} | {name: getattr(one, name) for name in names} for one in outcomes
    ]

    def get_trials_url(condition: int, chosen: Mapping[str, str]) -> str:
        query = {"experiment": slug, "condition": str(condition), **chosen}
        return f"{reverse('trial_list')}?{urlencode(query)}"

    links = [
        {name: get_trials_url(one.condition, chosen) for name, chosen in FILTERS.items() if getattr(one, name)}
        for one in outcomes
    ]
    notes = [
        "Empty and truncated answers are part of the done answers. Refused counts done and failed trials.",
        "An answer can be in several groups.",
    ]
    return ResultTable("outcomes", "Outcomes of the trials", columns, rows, notes=notes, links=links if slug else [])
