"""Prepared statements of the hot path: the server plans each once per connection, not once per batch.

Django binds parameters on the client, so the server would parse and plan each statement anew. That took longer than the
rows themselves. These statements run in the same transactions, over the same connection.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from django.db import connection
from pydantic_core import PydanticSerializationError, to_json


def fetch_prepared(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a statement. Raise Django's database errors, as its own cursors do."""
    session = _get_session()
    with connection.wrap_database_errors, psycopg.Cursor(session) as cursor:
        return cursor.execute(sql, parameters, prepare=True).fetchall()


def fetch_pipelined(*statements: tuple[str, Sequence[Any]]) -> list[list[tuple[Any, ...]]]:
    """Return the rows of several statements, which are sent together in this order."""
    session = _get_session()
    with connection.wrap_database_errors, session.pipeline():
        cursors = [psycopg.Cursor(session).execute(sql, values, prepare=True) for sql, values in statements]
        return [cursor.fetchall() for cursor in cursors]


def fetch_and_commit(*statements: tuple[str, Sequence[Any]]) -> list[list[tuple[Any, ...]]]:
    """Return the rows of the last statements of a transaction, and commit it in the same round trip.

    Django's own commit then finds nothing to do. Within another transaction, only that one commits.
    """
    session = _get_session()
    with connection.wrap_database_errors, session.pipeline():
        cursors = [psycopg.Cursor(session).execute(sql, values, prepare=True) for sql, values in statements]
        if len(connection.atomic_blocks) == 1:
            session.commit()
    # Only now has each cursor its result. A statement that returns nothing has no columns.
    return [cursor.fetchall() if cursor.description else [] for cursor in cursors]


def execute(sql: str, *parameters: Any) -> None:
    """Execute a statement that returns nothing."""
    session = _get_session()
    with connection.wrap_database_errors, psycopg.Cursor(session) as cursor:
        cursor.execute(sql, parameters, prepare=True)


def release_locks_early() -> None:
    """Let this transaction end its locks before its commit is on disk. The caller must then call `wait_for_disk`.

    A flush takes as long as all other work under an endpoint's lock, or longer, and all workers wait for that lock. The
    order of commits on disk is that of their locks. So a later commit is never on disk without the earlier ones.
    """
    fetch_prepared("SELECT set_config('synchronous_commit', 'off', true)")


def wait_for_disk() -> None:
    """Wait until the earlier commits of this session are on disk. Workers that wait at the same time share a flush."""
    if not connection.in_atomic_block:
        fetch_prepared("SELECT pg_logical_emit_message(true, 'evalsite', '')")  # Without a record, nothing is flushed.


def _get_session() -> Any:
    connection.ensure_connection()
    session: Any = connection.connection
    session.prepare_threshold = sys.maxsize  # Only statements that ask for it are prepared.
    return session


def discard_plans() -> None:
    """Let the server plan each statement anew at its next use.

    Tables grow while a worker runs, and the best plan for few rows is slow for many rows.
    """
    with connection.cursor() as cursor:
        cursor.execute("DISCARD PLANS")


def to_pg_json(rows: Iterable[dict[str, Any]]) -> str:
    """Return rows as JSON for PostgreSQL: decimals and UUIDs as text, only characters that its text type can hold."""
    rows = list(rows)
    try:
        text = to_json(rows).decode()
    except PydanticSerializationError:  # A lone surrogate.
        text = None
    if text is not None and "\\u0000" not in text:
        return text
    return to_json([{name: _replace_unstorable(value) for name, value in row.items()} for row in rows]).decode()


def _replace_unstorable(value: Any) -> Any:
    """Replace NUL and lone surrogates: answers may contain them, and PostgreSQL's text type cannot hold them."""
    if not isinstance(value, str) or (value.isascii() and "\x00" not in value):
        return value
    return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
