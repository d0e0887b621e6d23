"""The page's view of a `ResultTable`."""

from __future__ import annotations

import django_tables2 as tables
from django.utils.html import format_html

from grading_app.reports.result_table import ResultTable
from grading_app.tables.results import NUMBER

FIRST = {"td": {"class": "primary row-name"}}
TEXT = {"td": {"class": "row-name"}}


def html_table(table: ResultTable) -> tables.Table:
    """Return the table for `{% render_table %}`. Cells with an address in `links` are links."""
    columns = [
        (
            f"c{at}",
            tables.Column(verbose_name=column.label, attrs=NUMBER if column.is_number else TEXT if at else FIRST),
        )
        for at, column in enumerate(table.columns)
    ]
    rows = []
    for number, texts in enumerate(table.cells()):
        links = table.links[number] if table.links else {}
        addresses = [links.get(column.name) for column in table.columns]
        rows.append(
            {
                f"c{at}": format_html('<a href="{}">{}</a>', address, text) if address else text
                for at, (text, address) in enumerate(zip(texts, addresses, strict=True))
            }
        )
    return tables.Table(rows, extra_columns=columns, orderable=False, attrs={"class": "data-table keep-table"})
