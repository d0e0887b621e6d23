"""The site's leaderboard on its page. Rows are rendered here, because a template of 2,000 cells is slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from evalsite.lib.text import number_format
from grading_app.results.parametric.board_tables_and_figure import describe_second, get_cell_level
from grading_app.results.parametric.model_board import ModelRow
from grading_app.statistics.reason_score import TaskScore

ASCENDING_FIRST = ("model", "rank")  # Other columns are first sorted in descending order.


def make_heads(tasks: Sequence[str], sort: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the heads of all columns: label, address for sorting, and current order."""
    columns = [
        ("rank", "Rank"),
        ("score", "ReasonScore"),
        ("score2", "Version 2"),
        *((f"task-{task}", task) for task in tasks),
        ("tokens", "Tokens per answer"),
        ("per-token", "Score per token"),
        ("answers", "Answers"),
    ]
    heads = []
    for name, label in [("model", "Model"), *columns]:
        is_current = sort.removeprefix("-") == name
        is_descending = sort.startswith("-")
        next_sort = (
            (name if is_descending else f"-{name}") if is_current else (name if name in ASCENDING_FIRST else f"-{name}")
        )
        heads.append(
            {
                "label": label,
                "address": f"?{urlencode({**query, 'sort': next_sort})}",
                "order": ("descending" if is_descending else "ascending") if is_current else "",
            }
        )
    return heads


def make_rows(tasks: Sequence[str], rows: Sequence[ModelRow]) -> list[dict[str, Any]]:
    """Return each row with its cells as HTML, and whether it starts a new group of ranks.

    Groups are marked only if the rows are sorted by rank.
    """
    first_ranks = [row.rank.first for row in rows]
    in_groups = first_ranks == sorted(first_ranks)
    lines, previous = [], None
    for row in rows:
        is_new = in_groups and row.rank.first != previous
        leading = [
            ("num", str(row.rank)),
            ("num strong", row.first.marked if row.first else number_format.MISSING),
            ("num", describe_second(row) or number_format.MISSING),
        ]
        trailing = [
            ("num", number_format.MISSING if row.mean_tokens is None else f"{row.mean_tokens:,.0f}"),
            ("num", number_format.MISSING if row.per_token is None else f"{row.per_token:.2f}"),
            ("num", number_format.format_count(row.answers)),
        ]
        cells = format_html(
            "{}{}{}",
            format_html_join("", '<td class="{}">{}</td>', leading),
            format_html_join("", "{}", ((_render_task_cell(row, task),) for task in tasks)),
            format_html_join("", '<td class="{}">{}</td>', trailing),
        )
        lines.append({"row": row, "explorer": _get_explorer_url(row, ""), "cells": cells, "new": is_new})
        previous = row.rank.first
    return lines


def _render_task_cell(row: ModelRow, task: str) -> SafeString:
    cell: TaskScore | None = row.tasks.get(task)
    if cell is None:
        return format_html('<td class="absent">{}</td>', number_format.MISSING)
    level = get_cell_level(cell)
    shade = "none" if level is None else f"level-{level}"
    return format_html('<td class="{}"><a href="{}">{}</a></td>', shade, _get_explorer_url(row, task), cell.describe())


def _get_explorer_url(row: ModelRow, task: str) -> str:
    query: dict[str, str | int] = {"condition": row.condition, **({"task": task} if task else {})}
    return f"{reverse('explorer', args=[row.experiment])}?{urlencode(query)}"
