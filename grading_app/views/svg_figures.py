"""Figures as SVG: their addresses on a page, and the choices and the policy of their own requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from csp.decorators import csp_replace
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.http import urlencode

from grading_app.results.figures.kinds import FigureTable
from grading_app.results.plot_style import NARROW, WIDE, Theme
from grading_app.tables.results import make_figure_table

THEMES: dict[str, Theme] = {"": "auto", "light": "light", "dark": "dark"}
WIDTHS = {"": WIDE, "narrow": NARROW}
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


def make_figure_context(
    name: str,
    path: str,
    query: str | Mapping[str, str],
    *,
    title: str,
    caption: str,
    alt: str,
    size: tuple[int, int],
    narrow_size: tuple[int, int],
    table: FigureTable | None = None,
) -> dict[str, Any]:
    """Return a figure for `grading_app/partials/figure.html`.

    path, query: the address of its picture. size, narrow_size: width and height in CSS pixels. table: the numbers
    below the picture, or None if the page shows them elsewhere.
    """
    choices = query if isinstance(query, str) else urlencode(query)

    def make_address(**style: str) -> str:
        return f"{path}?{'&'.join(part for part in (choices, urlencode(style)) if part)}"

    return {
        "name": name,
        "title": title,
        "caption": caption,
        "alt": alt,
        "address": make_address(),
        "narrow": make_address(width="narrow"),
        "light": make_address(theme="light"),
        "dark": make_address(theme="dark"),
        "size": size,
        "narrow_size": narrow_size,
        "table": make_figure_table(table) if table else None,
    }
