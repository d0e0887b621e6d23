"""Tables and figures on pages and as files: their context, addresses, and responses with a table or a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from csp.decorators import csp_replace
from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode

from evalsite.lib.text.hashing import hash_content
from grading_app.results.cached_aggregates import RESULTS_VERSION
from grading_app.results.figure import Figure
from grading_app.results.plot_style import NARROW, WIDE, Theme, render_svg
from grading_app.results.table import CONTENT_TYPES, SUFFIXES, ResultTable
from grading_app.views.tables.results import make_html_table

THEMES: dict[str, Theme] = {"": "auto", "light": "light", "dark": "dark"}
WIDTHS = {"": WIDE, "narrow": NARROW}
CACHE_SECONDS = 24 * 3600
STATE_LENGTH = 12
"""The characters of a fingerprint in the address of a picture, which outdate the copies of browsers."""
# A picture may hold styles and images of its own, and nothing else.
POLICY = {
    "default-src": ["'none'"], "script-src": ["'none'"], "style-src": ["'unsafe-inline'"], "img-src": ["data:"],
}  # fmt: skip
ViewT = TypeVar("ViewT", bound=Callable[..., HttpResponse])
TABLE_FILES: Sequence[tuple[str, str]] = (("csv", "CSV"), ("md", "Markdown"), ("tex", "LaTeX"))
"""The formats of the table behind a figure, as its addresses name them."""
FOLDED = ("all_tests",)
"""The names of tables that a page shows only when a reader opens them."""


def svg_policy(view: ViewT) -> ViewT:
    """Replace the page's content security policy by that of a picture."""
    decorated: ViewT = csp_replace(POLICY)(view)
    return decorated


def read_theme(request: HttpRequest) -> Theme:
    """Return the theme in the address, by default that of the reader. Raise Http404 for an unknown one."""
    theme = THEMES.get(request.GET.get("theme", ""))
    if theme is None:
        raise Http404
    return theme


def read_width(request: HttpRequest) -> int:
    """Return the width in CSS pixels that the address names. Raise Http404 for an unknown one."""
    width = WIDTHS.get(request.GET.get("width", ""))
    if width is None:
        raise Http404
    return width


def make_svg_response(figure: Figure | None, width: int, theme: Theme, *, state: str = "") -> HttpResponse:
    """Return the figure as SVG. Raise Http404 if there is none.

    state: the address and the fingerprint of the data, if the picture may be kept as long as they are the same.
    """
    if figure is None:
        raise Http404

    def draw() -> bytes:
        return render_svg(lambda: figure.draw(width), theme)

    key = hash_content([RESULTS_VERSION, state, figure.name, width, theme])
    picture = cache.get_or_set(f"figure:{key}", draw, CACHE_SECONDS) if state else draw()
    return HttpResponse(picture, content_type="image/svg+xml")


def make_figure_context(
    figure: Figure | Mapping[str, Any], slug: str, query: str | Mapping[str, str] = "", *, has_table: bool = True
) -> dict[str, Any]:
    """Return a figure, or its `content`, for `grading_app/partials/figure.html`.

    slug: of the experiment. query: the choices in the address of its picture. has_table: False if the page shows the
    table elsewhere.
    """
    content = figure.content() if isinstance(figure, Figure) else figure
    choices = query if isinstance(query, str) else urlencode(query)

    def make_address(file_format: str = "svg", **style: str) -> str:
        path = reverse("figure_file", args=[slug, content["name"], file_format])
        return f"{path}?{'&'.join(part for part in (choices, urlencode(style)) if part)}".removesuffix("?")

    return {
        **content,
        "address": make_address(),
        "narrow": make_address(width="narrow"),
        "files": [("light", make_address(theme="light")), ("dark", make_address(theme="dark"))],
        "table_files": [(label, make_address(suffix)) for suffix, label in TABLE_FILES],
        "rows": make_html_table(ResultTable.from_content(content["table"])) if has_table else None,
    }


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
