"""Texts of any length: a page shows the first part, and a file holds the whole text."""

from __future__ import annotations

from django.http import HttpResponse

MOST_SHOWN = 20_000
"""Characters of one text that a page shows."""


def beginning(text: str | None) -> str:
    """Return as much of the text as a page shows."""
    return (text or "")[:MOST_SHOWN]


def is_cut(text: str | None) -> bool:
    """Whether a page shows only the first part of this text."""
    return len(text or "") > MOST_SHOWN


def text_file(text: str, name: str) -> HttpResponse:
    """Return the whole text as a plain file to store. A browser never shows it as a page."""
    response = HttpResponse(text.encode("utf-8", "replace"), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.txt"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response
