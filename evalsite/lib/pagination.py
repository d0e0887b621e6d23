"""Pagination of tables: the page number and the rows per page come from the query string."""

from __future__ import annotations

from django.http import HttpRequest
from django_tables2 import RequestConfig, Table

MOST_ROWS = 500


def paginate_table(request: HttpRequest, table: Table, per_page: int) -> None:
    """Sort the table and select its page from the query string.

    `per_page` in the query string may be 1 to MOST_ROWS; otherwise the argument applies. A page that does not exist is
    replaced by the nearest existing page.
    """
    RequestConfig(request, paginate=False).configure(table)
    rows = _whole_number(request, table.prefixed_per_page_field, per_page)
    table.paginate(page=1, per_page=rows if 1 <= rows <= MOST_ROWS else per_page)
    wanted = _whole_number(request, table.prefixed_page_field, 1)
    table.page = table.paginator.get_page(max(1, wanted))


def _whole_number(request: HttpRequest, name: str, default: int) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default
