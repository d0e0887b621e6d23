"""Prepared statements of the hot path: the server plans each once per connection, not once per batch.

Django binds parameters on the client, so the server would parse and plan each statement anew. That took longer than the
rows themselves. These statements run in the same transactions, over the same connection.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from django.db import connection
from psycopg.pq import TransactionStatus
from pydantic_core import PydanticSerializationError, to_json

Statement = tuple[str, Sequence[Any]]

RELEASE_LOCKS_EARLY = "SET LOCAL synchronous_commit TO off"
FLUSH = "SELECT pg_logical_emit_message(true, 'evalsite', '')"  # Without a record in the log, nothing is flushed.


class _Thread(threading.local):
    """The state of a thread's session."""

    def __init__(self) -> None:
        self.session: Any = None
        self.cursors: list[Any] = []
        self.commits_may_be_off_disk = False


_thread = _Thread()


def fetch_prepared(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a statement. Raise Django's database errors, as its own cursors do."""
    (cursor,) = _get_cursors(1)
    with connection.wrap_database_errors:
        rows: list[tuple[Any, ...]] = cursor.execute(sql, parameters, prepare=True).fetchall()
    return rows


def fetch_pipelined(*statements: Statement) -> list[list[tuple[Any, ...]]]:
    """Return the rows of several statements, which are sent together in this order.

    The first statements of a transaction also begin it, in the same round trip.
    """
    session = _get_session()
    if connection.in_atomic_block and session.pgconn.transaction_status == TransactionStatus.IDLE:
        session.autocommit = True  # Otherwise psycopg sends its own BEGIN, and waits for it.
        return _fetch_together(("BEGIN", ()), *statements)[1:]
    return _fetch_together(*statements)


def fetch_and_commit(*statements: Statement) -> list[list[tuple[Any, ...]]]:
    """Return the rows of the last statements of a transaction, commit it and wait for the disk, in one round trip.

    Django's own commit then finds nothing to do. Within another transaction, only that one commits.
    """
    if len(connection.atomic_blocks) > 1:
        return _fetch_together(*statements)
    # The message is a transaction of its own: the locks end before it.
    ends = ["COMMIT", FLUSH] if _thread.commits_may_be_off_disk else ["COMMIT"]
    rows = _fetch_together(*statements, *((sql, ()) for sql in ends))
    _thread.commits_may_be_off_disk = False
    return rows[: len(statements)]


def _fetch_together(*statements: Statement) -> list[list[tuple[Any, ...]]]:
    cursors = _get_cursors(len(statements))
    with connection.wrap_database_errors, _get_session().pipeline():
        for cursor, (sql, values) in zip(cursors, statements, strict=True):
            cursor.execute(sql, values, prepare=True)
    # Only now has each cursor its result: to fetch within the pipeline costs a second round trip. A statement that
    # returns nothing has no row number.
    return [[] if cursor.rownumber is None else cursor.fetchall() for cursor in cursors]


def execute(sql: str, *parameters: Any) -> None:
    """Execute a statement that returns nothing."""
    (cursor,) = _get_cursors(1)
    with connection.wrap_database_errors:
        cursor.execute(sql, parameters, prepare=True)


def release_locks_early() -> None:
    """Let this transaction end its locks before its commit is on disk. The caller must then call `wait_for_disk`.

    A flush takes as long as all other work under an endpoint's lock, or longer, and all workers wait for that lock. The
    order of commits on disk is that of their locks. So a later commit is never on disk without the earlier ones.
    """
    execute(RELEASE_LOCKS_EARLY)
    note_early_release()


def note_early_release() -> None:
    """Note that RELEASE_LOCKS_EARLY is part of this transaction."""
    _thread.commits_may_be_off_disk = True


def wait_for_disk() -> None:
    """Wait until the earlier commits of this session are on disk. Workers that wait at the same time share a flush."""
    if _thread.commits_may_be_off_disk and not connection.in_atomic_block:
        execute(FLUSH)
        _thread.commits_may_be_off_disk = False


def _get_session() -> Any:
    connection.ensure_connection()
    session: Any = connection.connection
    session.prepare_threshold = sys.maxsize  # Only statements that ask for it are prepared.
    return session


def _get_cursors(n: int) -> list[Any]:
    """Return cursors of this thread's session. They are used again, because a new one takes as long as a statement."""
    session = _get_session()
    if _thread.session is not session:
        _thread.session, _thread.cursors = session, []
    _thread.cursors += [psycopg.Cursor(session) for _ in range(n - len(_thread.cursors))]
    return _thread.cursors[:n]


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
