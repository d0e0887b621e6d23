"""The table of outcomes of trials, by condition: for the results page and the written report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.urls import reverse
from django.utils.http import urlencode

from grading_app.results.frames import Outcomes
from grading_app.results.table import ResultColumn, ResultTable

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
