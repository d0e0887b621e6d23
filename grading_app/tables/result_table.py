"""The page's view of a `ResultTable`."""

from __future__ import annotations

from dataclasses import replace

import django_tables2 as tables
from django.utils.html import format_html

from grading_app.reports.result_table import ResultTable
from grading_app.tables.results import TextTable

MOST_SHOWN = 100
"""Rows that a page shows of one table. Files have all rows."""


def make_html_table(table: ResultTable, order: str = "") -> tables.Table:
    """Return the first rows of the table for `{% render_table %}`. Cells with an address in `links` are links.

    order: of the rows, if the table can be sorted: a column's name, after a minus sign in descending order.
    """
    if table.is_sortable:
        table = table.sort_by(order)
    rows: list[list[str]] = replace(table, rows=table.rows[:MOST_SHOWN]).cells()
    for number, links in enumerate(table.links[:MOST_SHOWN]):
        for at, column in enumerate(table.columns):
            if address := links.get(column.name):
                rows[number][at] = format_html('<a href="{}">{}</a>', address, rows[number][at])
    heads = {column.name: column.label for column in table.columns}
    numbers = [column.is_number for column in table.columns]
    return TextTable(heads, numbers, rows, is_sortable=table.is_sortable, order=order)
