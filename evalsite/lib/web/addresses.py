"""Addresses of pages: keys of rows in them, which anybody may edit, and the same page with other parameters."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest


def read_key(text: str) -> int | None:
    """Return the key of a row, or None if no row can have it."""
    return int(text) if text.isdecimal() and len(text) < 19 else None


def change_query(request: HttpRequest, without: Iterable[str] = (), **values: str) -> str:
    """Return the query of the address without some of its parameters, and with these values of others."""
    query = request.GET.copy()
    for name in without:
        query.pop(name, None)
    for name, value in values.items():
        query[name] = value
    return query.urlencode()
