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


def is_shortened(text: str | None) -> bool:
    """Return whether a page shows only the first part of this text."""
    return len(text or "") > MAX_SHOWN


def numbered_file(texts: Iterable[str], number: str, name: str) -> HttpResponse:
    """Return one of these texts as a file. `number` is its place, from 1, as an address gives it.

    Raise Http404 if there is no such text or it is empty.
    """
    text = dict(zip(map(str, itertools.count(1)), texts, strict=False)).get(number)
    if not text:
        raise Http404
    return text_file(text, f"{name}-{number}")


def text_file(text: str, name: str) -> HttpResponse:
    """Return the whole text as a plain file to download. A browser never displays it as a page."""
    response = HttpResponse(text.encode("utf-8", "replace"), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.txt"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response
