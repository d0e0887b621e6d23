"""Checks that turn the cells of one row into the fields of an item: text, key, choices and metadata."""

from __future__ import annotations

import json
import string
import unicodedata
from collections.abc import Mapping
from typing import Any

from datasets_app.importing.column_map import NoValue, to_text
from datasets_app.importing.limits import Limits
from datasets_app.importing.table_readers import parse_json
from evalsite.lib.text.pg_text import describe_unstorable


class BadField(Exception):
    """An error for a cell that cannot become this field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def clean_text(field: str, value: Any, most: int) -> str:
    """Return the cell as text that PostgreSQL can store. Raise BadField if it cannot or is longer than `most`."""
    try:
        text = to_text(value)
    except NoValue as error:
        raise BadField(field, str(error)) from None
    if len(text) > most:
        raise BadField(field, f"has {len(text):,} characters; at most {most:,} are taken")
    if fault := describe_unstorable(text):
        raise BadField(field, fault)
    return text


def clean_key(value: Any, limits: Limits) -> str:
    """Return a key on one line, in Unicode NFC, without surrounding spaces, because keys are compared exactly."""
    key = unicodedata.normalize("NFC", clean_text("key", value, limits.key_chars)).strip()
    if not key:
        raise BadField("key", "is empty")
    if any(unicodedata.category(letter) == "Cc" for letter in key):
        raise BadField("key", f"{key!r} contains a control character or a line break")
    return key


def clean_choices(value: Any, limits: Limits) -> tuple[str, ...]:
    """Return the choices in a list, a JSON list, a text with "|", or {"text": [...]}. An empty cell has none."""
    parsed = _parse_choices(value)
    if len(parsed) == 1 or len(parsed) > limits.choices:
        raise BadField("choices", f"has {len(parsed)}; 2 to {limits.choices} are taken")
    choices = tuple(clean_text("choices", choice, limits.text_chars) for choice in parsed)
    if any(not choice.strip() for choice in choices):
        raise BadField("choices", f"number {[bool(choice.strip()) for choice in choices].index(False) + 1} is empty")
    return choices


def _parse_choices(value: Any) -> list[Any]:
    if isinstance(value, Mapping) and isinstance(value.get("text"), list):
        return list(value["text"])
    if isinstance(value, list | tuple):
        return list(value)
    if value is None or value == "":
        return []
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                parsed = parse_json(text)
            except ValueError as error:
                raise BadField("choices", f"starts like a JSON list but is none: {error}") from None
            return list(parsed)
        if "|" not in text:
            raise BadField("choices", 'is no list; write ["one", "two"] or one|two')
        return [part.strip() for part in text.split("|")]
    raise BadField("choices", f"is {type(value).__name__}, not a list")


def is_choice(target: str, choices: tuple[str, ...]) -> bool:
    """Return whether the target names a choice by its letter, its text, or its number from 0."""
    letters = string.ascii_uppercase[: len(choices)]
    numbers = {str(number) for number in range(len(choices))}
    return target.strip().upper() in set(letters) or target.strip() in {c.strip() for c in choices} | numbers


def clean_metadata(row: Mapping[str, Any], columns: list[str], limits: Limits) -> dict[str, Any]:
    """Return the other columns as JSON data without empty cells. Raise BadField if they cannot be stored."""
    metadata = {column: row[column] for column in columns if row.get(column) not in (None, "")}
    try:
        text = json.dumps(metadata, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadField("metadata", f"cannot be stored as JSON: {error}") from None
    clean_text("metadata", text, limits.metadata_chars)
    if fault := describe_unstorable(metadata):
        raise BadField("metadata", fault)
    return metadata
