"""The columns of an export, and how each format has the database write their cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from grading_app.export.spreadsheet import escape_cell_sql

Kind = Literal["text", "integer", "decimal", "real", "flag", "time", "json"]

UTC_TEXT = 'YYYY-MM-DD"T"HH24:MI:SS.US'
MOST_ARGUMENTS = 100  # That a function of PostgreSQL takes.


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind
    sql: str


def columns(kind: Kind, source: str, names: str) -> tuple[Column, ...]:
    """Columns of one kind that are called as in their table."""
    return tuple(Column(name, kind, f"{source}.{name}") for name in names.split())


def exact_cell(column: Column) -> str:
    if column.kind == "time":
        return f"to_char({column.sql} AT TIME ZONE 'UTC', '{UTC_TEXT}')"
    return f"({column.sql})::text" if column.kind in ("flag", "json") else column.sql


def spreadsheet_cell(column: Column) -> str:
    if column.kind == "time":
        return f"to_char({column.sql} AT TIME ZONE 'UTC', '{UTC_TEXT}\"Z\"')"
    cell = exact_cell(column)
    if column.kind not in ("text", "json"):
        return cell
    return escape_cell_sql(cell)


def json_members(some: Sequence[Column]) -> str:
    """A JSON object without its braces, cheaper than by row_to_json: that makes a row of the cells to read them out of
    it, and finds out for each cell of each row how its type is written."""
    pieces = [piece for column in some for piece in (f"""',"{column.name}":'""", _json_value(column))]
    pieces[0] = pieces[0].replace(",", "", 1)
    parts = (pieces[start : start + MOST_ARGUMENTS] for start in range(0, len(pieces), MOST_ARGUMENTS))
    return " || ".join(f"concat({', '.join(part)})" for part in parts)


def _json_value(column: Column) -> str:
    """Of kinds that are in JSON what they are as text, that text; others are quoted, or might be (not a number)."""
    if column.kind in ("integer", "flag", "json"):
        return f"coalesce(({column.sql})::text, 'null')"
    return f"coalesce(to_json({spreadsheet_cell(column) if column.kind == 'time' else column.sql}), 'null')"
