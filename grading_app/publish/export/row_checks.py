"""The check of the rows of a snapshot against the columns of their tables, before a database sees them. Pure.

A snapshot verifies if its checksums match, whoever wrote it. So each value is checked as well: its type, its range, its
length and, for JSON, its shape. `row_rules.py` derives the rules from the models.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from evalsite.lib.text.pg_text import describe_unstorable
from grading_app.publish.export.row_shapes import SHAPES

MAX_LEVELS = 50  # Brackets within each other.
FIRST_TIME, LAST_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)
DATE = re.compile(r"\d{4}-\d\d-\d\d\Z")
UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\Z")
HASH = re.compile(r"[0-9a-f]{64}\Z")
LARGEST_KEY = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of one column. kind: a key of CHECKS. low, high: of a number. length: of a text; 0 is no limit."""

    kind: str
    null: bool = False
    low: float | None = None
    high: float | None = None
    length: int = 0
    choices: tuple[str, ...] = ()


Rules = Mapping[str, Mapping[str, Rule]]  # By table, then by column.


class RowError(ValueError):
    """A row that no table could hold. The message names the row and the column."""


def read_row(line: bytes) -> dict[str, Any]:
    """Parse one line. Raise RowError if it is not a JSON object with finite numbers."""
    try:
        row = json.loads(line, parse_constant=_refuse_constant)
    except RecursionError:
        raise RowError(f"it is nested deeper than {MAX_LEVELS} brackets") from None
    except ValueError as error:
        raise RowError(f"it is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise RowError("it is not a JSON object")
    return row


def check_row(row: Mapping[str, Any], table: str, rules: Mapping[str, Rule]) -> None:
    """Raise RowError for the first value that its column may not hold. A column that is missing has its default."""
    for name, rule in rules.items():
        if name not in row:
            continue
        value = row[name]
        if value is None:
            if not rule.null:
                raise RowError(f"{name} is empty")
            continue
        if problem := CHECKS[rule.kind](value, rule) or _describe_shape(value, f"{table}.{name}"):
            raise RowError(f"{name} {problem}")
    if problem := _describe_shape(row, table):
        raise RowError(f"it {problem}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _check_integer(value: Any, rule: Rule) -> str:
    if type(value) is not int:
        return f"is {_show(value)}, not a whole number"
    return _check_range(value, rule)


def _check_number(value: Any, rule: Rule) -> str:
    if type(value) not in (int, float) or not math.isfinite(value):
        return f"is {_show(value)}, not a number"
    return _check_range(value, rule)


def _check_range(value: float, rule: Rule) -> str:
    if (rule.low is None or value >= rule.low) and (rule.high is None or value <= rule.high):
        return ""
    if rule.high is None:
        return f"is {_show(value)}; at least {rule.low:,} is allowed"
    return f"is {_show(value)}, not between {rule.low:,} and {rule.high:,}"


def _check_boolean(value: Any, rule: Rule) -> str:
    return "" if isinstance(value, bool) else f"is {_show(value)}, not true or false"


def _check_text(value: Any, rule: Rule) -> str:
    if not isinstance(value, str):
        return f"is {_show(value)}, not a text"
    if rule.length and len(value) > rule.length:
        return f"is longer than {rule.length:,} characters"
    if rule.choices and value not in rule.choices:
        return f"is {_show(value)}, not one of {', '.join(filter(None, rule.choices))}"
    return describe_unstorable(value)


def _check_time(value: Any, rule: Rule) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return f"is {_show(value)}, not a time such as 2026-03-01T12:00:00+00:00"
    if moment.tzinfo is None:
        return f"is {_show(value)}, a time without its offset from UTC"
    try:
        is_shown = FIRST_TIME <= moment <= LAST_TIME
    except OverflowError:
        is_shown = False
    return "" if is_shown else f"is {_show(value)}, not between 1970 and 9998"


def _check_date(value: Any, rule: Rule) -> str:
    try:
        day = date.fromisoformat(value) if DATE.match(value) else None
    except (TypeError, ValueError):
        day = None
    if day is None or not FIRST_TIME.date() <= day <= LAST_TIME.date():
        return f"is {_show(value)}, not a date between 1970 and 9998"
    return ""


def _check_uuid(value: Any, rule: Rule) -> str:
    return "" if isinstance(value, str) and UUID.match(value) else f"is {_show(value)}, not a UUID"


def _check_hash(value: Any, rule: Rule) -> str:
    return "" if isinstance(value, str) and HASH.match(value) else f"is {_show(value)}, not a SHA-256"


def _check_key(value: Any, rule: Rule) -> str:
    return "" if type(value) is int and 0 < value <= LARGEST_KEY else f"is {_show(value)}, not the number of a row"


def _check_keys(value: Any, rule: Rule) -> str:
    if not isinstance(value, list):
        return f"is {_show(value)}, not a list of rows"
    return next(filter(None, (_check_key(key, rule) for key in value)), "")


def _check_json(value: Any, rule: Rule) -> str:
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [
            part
            for outer in level
            if isinstance(outer, dict | list)
            for part in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return describe_unstorable(value)
    return f"is nested deeper than {MAX_LEVELS} brackets"


CHECKS: Mapping[str, Callable[[Any, Rule], str]] = {
    "integer": _check_integer, "number": _check_number, "boolean": _check_boolean, "text": _check_text,
    "time": _check_time, "date": _check_date, "uuid": _check_uuid, "hash": _check_hash, "key": _check_key,
    "keys": _check_keys, "json": _check_json,
}  # fmt: skip


def _describe_shape(value: Any, column: str) -> str:
    """Return why a value has not the shape that the site reads in this column or table, or ""."""
    adapter: TypeAdapter[Any] | None = SHAPES.get(column)
    if adapter is None:
        return ""
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:120]
        return f"has not the shape that its table holds{f', at {where}' if where else ''}: {first['msg']}"
    return ""


def _show(value: Any) -> str:
    return repr(value)[:60]
