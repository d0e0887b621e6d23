"""The columns of an export, and the SQL with which the database writes their cells in each format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evalsite.lib.text.spreadsheet import escape_cell_sql

Kind = Literal["text", "integer", "decimal", "real", "flag", "time", "json"]

UTC_TEXT = 'YYYY-MM-DD"T"HH24:MI:SS.US'
MAX_ARGUMENTS = 100  # The limit of PostgreSQL for the arguments of a function.


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind
    sql: str


def columns(kind: Kind, source: str, names: str) -> tuple[Column, ...]:
    """Return columns of one kind that have the same names as in their table."""
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


def json_members(members: Sequence[Column]) -> str:
    """Return SQL for a JSON object without its braces.

    It is faster than row_to_json. That function first makes a row of the cells, and looks up the type of each cell.
    """
    pieces = [piece for column in members for piece in (f"""',"{column.name}":'""", _build_json_value(column))]
    pieces[0] = pieces[0].replace(",", "", 1)
    parts = (pieces[start : start + MAX_ARGUMENTS] for start in range(0, len(pieces), MAX_ARGUMENTS))
    return " || ".join(f"concat({', '.join(part)})" for part in parts)


def _build_json_value(column: Column) -> str:
    """Return SQL for the JSON value of a column.

    Integers, booleans and JSON are written as their text. Other kinds go through to_json, which quotes where needed
    (also for NaN).
    """
    if column.kind in ("integer", "flag", "json"):
        return f"coalesce(({column.sql})::text, 'null')"
    return f"coalesce(to_json({spreadsheet_cell(column) if column.kind == 'time' else column.sql}), 'null')"
