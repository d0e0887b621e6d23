"""Keyset pages: a cursor names the last row of a page, so new rows neither repeat nor hide others."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Annotated, Any

from ninja import Field, Schema

from evalsite.api.problems import Problem

MAX_LIMIT, DEFAULT_LIMIT = 1000, 100
LARGEST_KEY = 2**63 - 1


class PageQuery(Schema):
    """The part of a list that a request asks for."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Rows of a page")] = DEFAULT_LIMIT
    after: Annotated[str, Field(max_length=80, description="`next` of the page before. Empty: the first page")] = ""


def encode_cursor(*keys: int) -> str:
    return base64.urlsafe_b64encode(".".join(map(str, keys)).encode()).decode().rstrip("=")


def decode_cursor(text: str, n_keys: int = 1) -> tuple[int, ...]:
    """Return the keys in a cursor, or zeros for the first page. Raise Problem for any other text."""
    if not text:
        return (0,) * n_keys
    try:
        parts = (
            base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii").split(".")
        )
        keys = tuple(int(part) for part in parts if part.isdecimal())
    except (binascii.Error, ValueError):
        keys = ()
    if len(keys) != n_keys or max(keys) > LARGEST_KEY:
        raise Problem(422, "The request has wrong or missing fields.", [("after", "is no cursor of this list")])
    return keys


def read_page(rows: Any, page: PageQuery, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return a page of a QuerySet in the order of its keys, with the cursor of the next page or None."""
    (key,) = decode_cursor(page.after)
    found = list(rows.filter(pk__gt=key).order_by("pk")[: page.limit + 1])
    shown = found[: page.limit]
    return {
        "items": [write(row) for row in shown],
        "next": encode_cursor(shown[-1].pk) if len(found) > page.limit else None,
    }
