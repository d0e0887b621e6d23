"""List pages: rows, their filter, their table and its page, all chosen by the query string."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django_filters import FilterSet
from django_tables2 import RequestConfig, Table

from evalsite.lib.web.form_fields import fetch_choices

MAX_ROWS = 500


@dataclass(frozen=True, slots=True)
class ListPage:
    """The declaration of a list page; its view adds the rows. The template extends `templates/list_page.html`."""

    table: type[Table]
    template: str
    filterset: type[FilterSet] | None = None
    per_page: int = 25

    def load(self, request: HttpRequest, rows: QuerySet[Any], **table_options: Any) -> dict[str, Any]:
        """Return `filter`, `table` and `shown`, the number of rows on the page. Every query runs here."""
        filter_ = self.filterset(request.GET, queryset=rows, request=request) if self.filterset else None
        table = self.table(filter_.qs if filter_ else rows, **table_options)
        paginate_table(request, table, self.per_page)
        if filter_:
            fetch_choices(filter_.form)
        return {"filter": filter_, "table": table, "shown": len(table.paginated_rows)}

    def render(self, request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
        return render(request, self.template, context)


def paginate_table(request: HttpRequest, table: Table, per_page: int) -> None:
    """Sort the table and select its page from the query string.

    `per_page` in the query string may be 1 to MAX_ROWS; otherwise the argument applies. A page that does not exist is
    replaced by the nearest existing page.
    """
    RequestConfig(request, paginate=False).configure(table)
    rows = _read_whole_number(request, table.prefixed_per_page_field, per_page)
    table.paginate(page=1, per_page=rows if 1 <= rows <= MAX_ROWS else per_page)
    page_number = _read_whole_number(request, table.prefixed_page_field, 1)
    table.page = table.paginator.get_page(max(1, page_number))


def _read_whole_number(request: HttpRequest, name: str, default: int) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default
