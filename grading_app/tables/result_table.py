"""A `ResultTable` on a page."""

from __future__ import annotations

from dataclasses import replace

import django_tables2 as tables
from django.utils.html import format_html

from grading_app.results.table import ResultTable
from grading_app.tables.results import TextTable

MAX_ROWS = 100
"""The number of rows on a page. Files have all rows."""


def make_html_table(table: ResultTable, order: str = "", *, is_cards: bool = False) -> tables.Table:
    """Return the first rows of the table for `{% render_table %}`. Cells with an address in `links` become links.

    order: the sort column of a sortable table, with a minus sign for descending order. is_cards: as in TextTable.
    """
    if table.is_sortable:
        table = table.sort_by(order)
    rows: list[list[str]] = replace(table, rows=table.rows[:MAX_ROWS]).cells()
    for row_index, links in enumerate(table.links[:MAX_ROWS]):
        for column_index, column in enumerate(table.columns):
            if address := links.get(column.name):
                rows[row_index][column_index] = format_html(
                    '<a href="{}">{}</a>', address, rows[row_index][column_index]
                )
    heads = {column.name: column.label for column in table.columns}
    numbers = [column.is_number for column in table.columns]
    return TextTable(heads, numbers, rows, is_sortable=table.is_sortable, order=order, is_cards=is_cards)
