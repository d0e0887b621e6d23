"""A check for text and JSON that PostgreSQL cannot store. Pure: no Django, no I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def describe_unstorable(value: Any) -> str:
    """Return the end of a sentence that says why PostgreSQL cannot store the value, or "" if it can.

    The value is a text or a JSON value, which is searched recursively.
    """
    if isinstance(value, str):
        if "\x00" in value:
            return "contains a NUL character"
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"is not Unicode text at character {error.start + 1}"
        return ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"contains {value}, which is not a JSON number"
    parts: list[Any] = []
    if isinstance(value, Mapping):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple):
        parts = list(value)
    return next(filter(None, map(describe_unstorable, parts)), "")


def replace_unstorable(text: str) -> str:
    """Return the text with question marks for characters that PostgreSQL cannot store."""
    return text.replace("\x00", "?").encode("utf-8", "replace").decode()
