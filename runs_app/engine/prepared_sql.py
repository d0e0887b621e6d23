"""SQL of the hot path: planned by the server once a connection, not once a batch.

Django binds parameters on this side of the wire, so the server would parse and plan each statement anew: that took more
time than the rows did. These go in the same transactions, over the same connection, as prepared statements.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from django.db import connection
from pydantic_core import PydanticSerializationError, to_json


def fetch_rows(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """The rows that a statement returns. Errors are Django's, as from its own cursors."""
    session = _session()
    with connection.wrap_database_errors, psycopg.Cursor(session) as cursor:
        return cursor.execute(sql, parameters, prepare=True).fetchall()


def fetch_pipelined(*statements: tuple[str, Sequence[Any]]) -> list[list[tuple[Any, ...]]]:
    """As `fetched`, of several in that order, sent in one go: the server does not wait for us in between."""
    session = _session()
    with connection.wrap_database_errors, session.pipeline():
        cursors = [psycopg.Cursor(session).execute(sql, values, prepare=True) for sql, values in statements]
        return [cursor.fetchall() for cursor in cursors]


def execute(sql: str, *parameters: Any) -> None:
    """A statement that returns nothing."""
    session = _session()
    with connection.wrap_database_errors, psycopg.Cursor(session) as cursor:
        cursor.execute(sql, parameters, prepare=True)


def _session() -> Any:
    connection.ensure_connection()
    session: Any = connection.connection
    session.prepare_threshold = sys.maxsize  # Only what asks for it is prepared.
    return session


def discard_plans() -> None:
    """Plan anew at the next use: tables grow while a drain lives, and what is best for few rows is slow for many."""
    with connection.cursor() as cursor:
        cursor.execute("DISCARD PLANS")


def to_pg_json(rows: Iterable[dict[str, Any]]) -> str:
    """JSON that PostgreSQL takes: decimals and ids as text, and only characters that its text can hold."""
    rows = list(rows)
    try:
        text = to_json(rows).decode()
    except PydanticSerializationError:  # Half a surrogate pair.
        text = None
    if text is not None and "\\u0000" not in text:
        return text
    return to_json([{name: _clean(value) for name, value in row.items()} for row in rows]).decode()


def _clean(value: Any) -> Any:
    """A model may answer with NUL or half a surrogate pair, which PostgreSQL's text cannot hold."""
    if not isinstance(value, str) or (value.isascii() and "\x00" not in value):
        return value
    return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
