"""Long texts: a page shows only the first part, and a file contains the whole text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from django.http import Http404, HttpResponse

MAX_SHOWN = 20_000
"""Characters of one text that a page shows."""


def shorten(text: str | None) -> str:
    """Return the part of the text that a page shows."""
    return (text or "")[:MAX_SHOWN]


def build_numbered_text_response(texts: Iterable[str], number: str, name: str) -> HttpResponse:
    """Return one of these texts as a file. `number` is its position from 1, as text from an address.

    Raise Http404 if the text does not exist or is empty.
    """
    text = dict(zip(map(str, itertools.count(1)), texts, strict=False)).get(number)
    if not text:
        raise Http404
    return build_text_response(text, f"{name}-{number}")


def build_text_response(text: str, name: str) -> HttpResponse:
    """Return the whole text as a plain file to download. A browser never displays it as a page."""
    response = HttpResponse(text.encode("utf-8", "replace"), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.txt"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response
