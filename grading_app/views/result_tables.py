"""Result tables on pages, and the same tables as files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse

from grading_app.results.table import CONTENT_TYPES, SUFFIXES, ResultTable
from grading_app.tables.results import make_html_table

FOLDED = ("all_tests",)
"""The names of tables that a page shows only when a reader opens them."""


def get_table_context(table: ResultTable, order: str = "") -> dict[str, Any]:
    """Return the context of `grading_app/partials/result_table.html`. order: as in `make_html_table`.

    A phone shows a card for each row.
    """
    return {"table": table, "html": make_html_table(table, order, is_cards=True), "is_folded": table.name in FOLDED}


def make_requested_file(request: HttpRequest, tables: Iterable[ResultTable], basename: str) -> HttpResponse | None:
    """Return the table as a file if the address asks for one (`?table=NAME&format=csv`), else None.

    Raise Http404 for a table or a format that does not exist.
    """
    name, file_format = request.GET.get("table", ""), request.GET.get("format", "")
    if not file_format:
        return None
    table = next((candidate for candidate in tables if candidate.name == name), None)
    if table is None or file_format not in CONTENT_TYPES:
        raise Http404
    response = HttpResponse(table.render(file_format), content_type=CONTENT_TYPES[file_format])
    response["Content-Disposition"] = f'attachment; filename="{basename}-{name}.{SUFFIXES[file_format]}"'
    return response
