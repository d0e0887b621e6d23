"""Prepared statements of the hot path: the server plans each once per connection, not once per batch.

Django binds parameters on the client, so the server would parse and plan each statement anew. That took longer than the
rows themselves. These statements run in the same transactions, over the same connection.

They use the protocol through `psycopg.pq`. psycopg's cursors send each statement of a pipeline by a system call of its
own, which takes the worker's and the server's processors four times as long (`docs/benchmarks.md`).
"""

from __future__ import annotations

import select
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import psycopg
from django.db import connection
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from pydantic_core import PydanticSerializationError, to_json

Statement = tuple[str, Sequence[Any]]

RELEASE_LOCKS_EARLY = "SET LOCAL synchronous_commit TO off"
FLUSH = "SELECT pg_logical_emit_message(true, 'evalsite', '')"  # Without a record in the log, nothing is flushed.
FAILURES = {ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED}


class PreparedSession:
    """A database session with the names of its prepared statements."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.session = session
        self._names: dict[str, bytes] = {}
        self._converter = Transformer.from_context(session)
        self._readiness = select.poll()
        self._readiness.register(session.pgconn.socket)

    def fetch(self, statements: Sequence[Statement]) -> list[list[tuple[Any, ...]]]:
        """Send statements together, in one pipeline. Return the rows of each, or raise the error of the first failure.

        Outside a transaction, together they are one. Parameters are sent as text, and the server infers their types.
        """
        pgconn, new_names = self.session.pgconn, dict[str, bytes]()
        prepared: list[str | None] = []  # For each result, the statement that it prepares, or None if it has rows.
        pgconn.enter_pipeline_mode()
        try:
            for sql, values in statements:
                name = self._names.get(sql) or new_names.get(sql)
                if name is None:
                    name = new_names[sql] = b"engine_%d" % (len(self._names) + len(new_names))
                    pgconn.send_prepare(name, _number_parameters(sql))
                    prepared.append(sql)
                pgconn.send_query_prepared(name, [_to_text(value) for value in values])
                prepared.append(None)
            pgconn.pipeline_sync()
            results = list(self._receive())
        except BaseException:  # The rest of the results would be taken for those of the next statements.
            self.session.close()
            raise
        pgconn.exit_pipeline_mode()
        rows = []
        for prepares, result in zip(prepared, results, strict=True):
            if result.status in FAILURES:
                raise error_from_result(result)
            if prepares is not None:
                self._names[prepares] = new_names[prepares]
            else:
                self._converter.set_pgresult(result)
                rows.append(self._converter.load_rows(0, result.ntuples, tuple))
        return rows

    def _receive(self) -> Iterator[Any]:
        """Yield the results of a pipeline. Meanwhile send what did not fit in the buffer: the server may wait too."""
        pgconn = self.session.pgconn
        is_unsent = bool(pgconn.flush())
        while True:
            while is_unsent or pgconn.is_busy():
                self._readiness.modify(pgconn.socket, select.POLLIN | (select.POLLOUT if is_unsent else 0))
                ((_, ready),) = self._readiness.poll()
                if ready != select.POLLOUT:
                    pgconn.consume_input()
                is_unsent = is_unsent and bool(pgconn.flush())
            result = pgconn.get_result()
            if result is None:
                if pgconn.status == ConnStatus.BAD:
                    raise psycopg.OperationalError(pgconn.get_error_message())
            elif result.status == ExecStatus.PIPELINE_SYNC:
                return
            else:
                yield result


def _number_parameters(sql: str) -> bytes:
    """Return SQL with the server's placeholders $1, $2 ... in place of %s."""
    first, *others = sql.split("%s")
    return "".join([first, *(f"${n}{text}" for n, text in enumerate(others, 1))]).replace("%%", "%").encode()


def _to_text(value: Any) -> bytes | None:
    if isinstance(value, list):
        value = f"{{{','.join(map(str, value))}}}"
    return None if value is None else str(value).encode()


class _Thread(threading.local):
    """The state of a thread's session."""

    def __init__(self) -> None:
        self.session: PreparedSession | None = None
        self.commits_may_be_off_disk = False


_thread = _Thread()


def fetch_prepared(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a statement. Raise Django's database errors, as its own cursors do."""
    return fetch_pipelined((sql, parameters))[0]


def execute(sql: str, *parameters: Any) -> None:
    """Execute a statement that returns nothing."""
    fetch_pipelined((sql, parameters))


def fetch_pipelined(*statements: Statement) -> list[list[tuple[Any, ...]]]:
    """Return the rows of several statements, which are sent together in this order.

    The first statements of a transaction also begin it, in the same round trip. Numbers, texts, UUIDs and lists of
    numbers may be parameters.
    """
    connection.ensure_connection()
    session = _thread.session
    if session is None or session.session is not connection.connection:
        session = _thread.session = PreparedSession(connection.connection)
    begins = connection.in_atomic_block and session.session.pgconn.transaction_status == TransactionStatus.IDLE
    with connection.wrap_database_errors:
        return session.fetch([("BEGIN", ()), *statements])[1:] if begins else session.fetch(statements)


def fetch_and_commit(*statements: Statement) -> list[list[tuple[Any, ...]]]:
    """Return the rows of the last statements of a transaction, commit it and wait for the disk, in one round trip.

    Django's own commit then finds nothing to do. Within another transaction, only that one commits.
    """
    if len(connection.atomic_blocks) > 1:
        return fetch_pipelined(*statements)
    # The message is a transaction of its own: the locks end before it.
    ends = ["COMMIT", FLUSH] if _thread.commits_may_be_off_disk else ["COMMIT"]
    rows = fetch_pipelined(*statements, *((sql, ()) for sql in ends))
    _thread.commits_may_be_off_disk = False
    return rows[: len(statements)]


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
