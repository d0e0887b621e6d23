"""The check of the rows of a snapshot against the columns of their tables, before a database sees them. Pure.

A snapshot verifies if its checksums match, whoever wrote it. So each value is checked as well: its type, its range, its
length and, for JSON, its shape. `study_rows.build_rules` derives the rules from the models.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from pydantic import TypeAdapter

from evalsite.lib.text.characters import describe_unstorable
from grading_app.publish.export.row_shapes import SHAPES, find_mismatch

MAX_LEVELS = 50  # Brackets within each other.
FIRST_TIME, LAST_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)
DATE = re.compile(r"\d{4}-\d\d-\d\d\Z")
UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\Z")
HASH = re.compile(r"[0-9a-f]{64}\Z")
LARGEST_KEY = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """The rule of one column. kind: a key of CHECKS. low, high: of a number. length: of a text; 0 is no limit."""

    kind: str
    null: bool = False
    low: float | None = None
    high: float | None = None
    length: int = 0
    choices: tuple[str, ...] = ()


Check = Callable[[Any, ColumnRule], str]
CHECKS: dict[str, Check] = {}
"""The check of each kind of value. It returns why a value is wrong, or ""."""


def check(kind: str) -> Callable[[Check], Check]:
    """Return a decorator that makes a function the check of this kind."""

    def register(function: Check) -> Check:
        CHECKS[kind] = function
        return function

    return register


Rules = Mapping[str, Mapping[str, ColumnRule]]  # By table, then by column.


class RowError(ValueError):
    """A row that no table could hold. The message names the row and the column."""


def read_row(line: bytes) -> dict[str, Any]:
    """Parse one line. Raise RowError if it is not a JSON object with finite numbers."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a number of JSON")

    try:
        row = json.loads(line, parse_constant=refuse)
    except RecursionError:
        raise RowError(f"it is nested deeper than {MAX_LEVELS} brackets") from None
    except ValueError as error:
        raise RowError(f"it is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise RowError("it is not a JSON object")
    return row


def check_row(row: Mapping[str, Any], table: str, rules: Mapping[str, ColumnRule]) -> None:
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


@check("integer")
def check_integer(value: Any, rule: ColumnRule) -> str:
    if type(value) is not int:
        return f"is {_show(value)}, not a whole number"
    return _check_range(value, rule)


@check("number")
def check_number(value: Any, rule: ColumnRule) -> str:
    if type(value) not in (int, float) or not math.isfinite(value):
        return f"is {_show(value)}, not a number"
    return _check_range(value, rule)


def _check_range(value: float, rule: ColumnRule) -> str:
    if (rule.low is None or value >= rule.low) and (rule.high is None or value <= rule.high):
        return ""
    if rule.high is None:
        return f"is {_show(value)}; at least {rule.low:,} is allowed"
    return f"is {_show(value)}, not between {rule.low:,} and {rule.high:,}"


@check("boolean")
def check_boolean(value: Any, rule: ColumnRule) -> str:
    return "" if isinstance(value, bool) else f"is {_show(value)}, not true or false"


@check("text")
def check_text(value: Any, rule: ColumnRule) -> str:
    if not isinstance(value, str):
        return f"is {_show(value)}, not a text"
    if rule.length and len(value) > rule.length:
        return f"is longer than {rule.length:,} characters"
    if rule.choices and value not in rule.choices:
        return f"is {_show(value)}, not one of {', '.join(filter(None, rule.choices))}"
    return describe_unstorable(value)


@check("time")
def check_time(value: Any, rule: ColumnRule) -> str:
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


@check("date")
def check_date(value: Any, rule: ColumnRule) -> str:
    try:
        day = date.fromisoformat(value) if DATE.match(value) else None
    except (TypeError, ValueError):
        day = None
    if day is None or not FIRST_TIME.date() <= day <= LAST_TIME.date():
        return f"is {_show(value)}, not a date between 1970 and 9998"
    return ""


@check("uuid")
def check_uuid(value: Any, rule: ColumnRule) -> str:
    return "" if isinstance(value, str) and UUID.match(value) else f"is {_show(value)}, not a UUID"


@check("hash")
def check_hash(value: Any, rule: ColumnRule) -> str:
    return "" if isinstance(value, str) and HASH.match(value) else f"is {_show(value)}, not a SHA-256"


@check("key")
def check_key(value: Any, rule: ColumnRule) -> str:
    return "" if type(value) is int and 0 < value <= LARGEST_KEY else f"is {_show(value)}, not the number of a row"


@check("keys")
def check_keys(value: Any, rule: ColumnRule) -> str:
    if not isinstance(value, list):
        return f"is {_show(value)}, not a list of rows"
    return next(filter(None, (check_key(key, rule) for key in value)), "")


@check("json")
def check_json(value: Any, rule: ColumnRule) -> str:
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


def _describe_shape(value: Any, column: str) -> str:
    """Return why a value has not the shape that the site reads in this column or table, or ""."""
    adapter: TypeAdapter[Any] | None = SHAPES.get(column)
    if adapter is None:
        return ""
    if (mismatch := find_mismatch(adapter, value)) is None:
        return ""
    where, reason = mismatch
    return f"has not the shape that its table holds{f', at {where}' if where else ''}: {reason}"


def _show(value: Any) -> str:
    return repr(value)[:60]
