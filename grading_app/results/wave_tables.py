"""The tables of two waves side by side: the items' scores in both, and the outcomes of the trials."""

from __future__ import annotations

from collections.abc import Sequence

from grading_app.results.table import Kind, ResultColumn, ResultTable, Row
from grading_app.results.waves import WaveChange, WaveOutcome
from runs_app.models import Wave

ALL_CONDITIONS = "all conditions"


def make_score_tables(lines: Sequence[WaveChange], a: Wave, b: Wave) -> list[ResultTable]:
    """Return a table of the measures that are shares and one of the others: a row for each measure and condition.

    Measures without an item scored in both waves have rows only if another measure has one.
    """
    if not any(line.change for line in lines):
        return []
    shares = [line for line in lines if line.measure.is_share]
    others = [line for line in lines if not line.measure.is_share]
    tables = []
    for name, title, group in (("shares", "Shares", shares), ("means", "Means", others)):
        kinds: tuple[Kind, ...] = (
            ("share", "signed_share", "points", "points_interval")
            if name == "shares"
            else ("number", "signed", "number", "interval")
        )
        columns = [
            ResultColumn("measure", "Measure"),
            ResultColumn("condition", "Condition"),
            ResultColumn("items", "Items", "count"),
            ResultColumn("unpaired", "Unpaired items", "count"),
            ResultColumn("mean_a", str(a), kinds[0]),
            ResultColumn("mean_b", str(b), kinds[0]),
            ResultColumn("difference", "Difference", kinds[1]),
            ResultColumn("se", "SE by item", kinds[2], places=3),
            ResultColumn("interval", "95 % interval", kinds[3]),
            ResultColumn("reason", "No interval"),
            ResultColumn("p", "p", "p"),
            ResultColumn("test", "Test"),
            ResultColumn("adjusted", "p, Holm", "p"),
            ResultColumn("unread_a", f"No score, {a}", "count"),
            ResultColumn("unread_b", f"No score, {b}", "count"),
            ResultColumn("drift", "Drift"),
        ]
        rows: list[Row] = [
            {
                "measure": line.measure.label,
                "condition": line.condition or ALL_CONDITIONS,
                "items": line.change.n if line.change else 0,
                "unpaired": line.unpaired,
                "mean_a": line.mean_a,
                "mean_b": line.mean_b,
                "adjusted": line.adjusted,
                "unread_a": line.unread_a,
                "unread_b": line.unread_b,
                "drift": _describe_drift(line),
                **(
                    {
                        "difference": change.mean,
                        "se": change.se,
                        "interval": None if change.reason or change.low is None else (change.low, change.high),
                        "reason": change.reason or None,
                        "p": change.p,
                        "test": change.test_text or None,
                    }
                    if (change := line.change)
                    else {}
                ),
            }
            for line in group
        ]
        left_out = {column for column in ("unpaired", "reason") if not any(row.get(column) for row in rows)}
        if not any(line.unread_a or line.unread_b for line in group):
            left_out |= {"unread_a", "unread_b"}
        if len({line.condition for line in lines}) == 1:
            left_out.add("condition")
        if rows:
            tables.append(ResultTable(name, title, [one for one in columns if one.name not in left_out], rows))
    return tables


def _describe_drift(line: WaveChange) -> str | None:
    if line.adjusted is None:
        return None
    if line.judge_has_changed:
        return "judge changed"
    return "drift" if line.has_drifted else "none shown"


def make_outcome_table(outcomes: Sequence[WaveOutcome], a: Wave, b: Wave) -> ResultTable:
    """Return the outcomes of the trials: a row for each condition and wave. Shares are of the done trials."""
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("wave", "Wave"),
        ResultColumn("done", "Done", "count_of"),
        ResultColumn("failed", "Failed", "count"),
        ResultColumn("unread", "No rating found", "share"),
        ResultColumn("empty", "Empty", "share"),
        ResultColumn("truncated", "Truncated", "share"),
        ResultColumn("refused", "Refused", "share"),
        ResultColumn("served", "Served as"),
        ResultColumn("provider", "By"),
    ]
    shown = {
        "unread": any(row.counts.unread for row in outcomes),
        "served": any(row.served.models for row in outcomes),
        "provider": any(row.served.providers for row in outcomes),
    }
    rows: list[Row] = [
        {
            "condition": row.condition or ALL_CONDITIONS,
            "wave": str(b if row.is_b else a),
            "done": (row.counts.done, row.counts.trials),
            "failed": row.counts.failed,
            **{
                name: getattr(row.counts, name) / row.counts.done if row.counts.done else None
                for name in ("unread", "empty", "truncated", "refused")
            },
            "served": _describe_served(row.served.models, row.differs.models),
            "provider": _describe_served(row.served.providers, row.differs.providers),
        }
        for row in outcomes
    ]
    return ResultTable("outcomes", "Outcomes", [one for one in columns if shown.get(one.name, True)], rows)


def _describe_served(names: Sequence[str], has_changed: bool) -> str | None:
    return f"{', '.join(names)} (changed)" if has_changed else ", ".join(names) or None
