"""The refusal of connection poolers that give each transaction another session, such as PgBouncer in transaction mode.

Drains and `up` hold advisory locks of their session, and drains prepare statements in it. Both would be lost, or would
belong to another program, without any error. A pooler in session mode works.
"""

from __future__ import annotations

from typing import Any

from django.db import connection

from evalsite.lib.ops.environment import SettingError

TRIES = 5
PROBLEM = (
    "DATABASE_URL leads to a connection pooler in transaction mode: two transactions of one connection got different"
    " sessions. The site needs its own sessions, for locks and prepared statements. Use the address of PostgreSQL"
    " itself, or a pool in session mode (pool_mode = session)."
)


def refuse_transaction_pooling() -> None:
    """Raise SettingError if the database's sessions are shared between transactions.

    PostgreSQL tells a client the process id of its session, but a pooler tells another number. So one query decides
    that there is no pooler. With a pooler, a second connection takes sessions: in transaction mode, those of the first.
    """
    with connection.cursor() as cursor:
        session = _get_session(cursor)
        if session == connection.connection.info.backend_pid:
            return
        other = connection.copy()
        try:
            for _ in range(TRIES):
                other.set_autocommit(False)
                with other.cursor() as taking:
                    is_shared = _get_session(taking) == session or _get_session(cursor) != session
                other.rollback()
                if is_shared:
                    raise SettingError(PROBLEM)
        finally:
            other.close()


def _get_session(cursor: Any) -> int:
    cursor.execute("SELECT pg_backend_pid()")
    return int(cursor.fetchone()[0])
