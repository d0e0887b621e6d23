"""Figures on pages and as pictures: their context, their addresses, and the response with a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from csp.decorators import csp_replace
from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode

from evalsite.lib.text.hashing import hash_content
from grading_app.results.answer_aggregates import RESULTS_VERSION
from grading_app.results.figure import Figure
from grading_app.results.plot_style import NARROW, WIDE, Theme, render_svg
from grading_app.results.table import ResultTable
from grading_app.tables.results import make_html_table

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


TABLE_FILES: Sequence[tuple[str, str]] = (("csv", "CSV"), ("md", "Markdown"), ("tex", "LaTeX"))
"""The formats of the table behind a figure, as its addresses name them."""
