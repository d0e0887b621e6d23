"""Parsing of JSON that people write, with limits on length, depth and integers, and a form field that uses it."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.fields import InvalidJSONInput

from evalsite.lib.text.characters import describe_unstorable

MAX_CHARACTERS = 1_000_000
MAX_LEVELS = 50
LARGEST_INTEGER = 2**63 - 1


def read_json(text: str) -> Any:
    """Parse the JSON text and return its value.

    Raise ValueError if the text is not valid JSON or exceeds a limit. The message names the line or the limit.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"This is too long: {len(text):,} characters, at most {MAX_CHARACTERS:,} are read.")
    try:
        value = json.loads(text, parse_int=_read_integer)
    except json.JSONDecodeError as error:
        raise ValueError(f"Enter a valid JSON. Line {error.lineno}, column {error.colno}: {error.msg}.") from None
    except RecursionError:
        raise ValueError(_describe_depth_limit()) from None
    _check_depth(value)
    if fault := describe_unstorable(value):
        raise ValueError(f"This {fault}.")
    return value


def _read_integer(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > LARGEST_INTEGER:
        raise ValueError(f"The number {digits[:12]}... is too large: whole numbers have at most 64 bits.")
    return int(digits)


def _check_depth(value: Any) -> None:
    """Raise ValueError if the value is nested deeper than MAX_LEVELS.

    The walk goes level by level without recursion, so that no input can exhaust the stack.
    """
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [
            part
            for outer in level
            if isinstance(outer, dict | list)
            for part in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ValueError(_describe_depth_limit())


def _describe_depth_limit() -> str:
    return f"This is nested too deeply: at most {MAX_LEVELS} brackets stand within each other."


class BoundedJSONField(forms.JSONField):
    """A JSON form field that reports every bad input as a form error. It redisplays rejected text unchanged."""

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and value not in self.empty_values and not self.disabled:
            try:
                read_json(value)
            except ValueError as error:
                raise ValidationError(str(error), code="invalid") from None
        return super().to_python(value)

    def bound_data(self, data: Any, initial: Any) -> Any:
        if isinstance(data, str) and not self.disabled:
            try:
                return read_json(data)
            except ValueError:
                return InvalidJSONInput(data)
        return super().bound_data(data, initial)
