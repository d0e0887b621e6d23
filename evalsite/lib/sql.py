"""SQL that the ORM cannot express, and iteration over many rows by key.

The iteration uses short statements, so that no database snapshot stays open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.db import DatabaseError, connection
from django.db.models import Func, IntegerField
from psycopg import sql


def fetch_rows(statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    """Execute the statement and return all of its rows. Values from a request are passed only as parameters."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def load_catalogue() -> None:
    """Open this thread's connection, and let PostgreSQL read what it needs to know of all tables.

    Otherwise the first pages over a connection take 10 to 100 ms more. Without a database, do nothing.
    """
    tables = [model._meta.db_table for model in apps.get_models(include_auto_created=True)]
    rows = (sql.SQL("SELECT 1 FROM {} WHERE false").format(sql.Identifier(name)) for name in dict.fromkeys(tables))
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL(" UNION ALL ").join(rows))
    except DatabaseError:  # The pages say what is wrong with the database.
        connection.close()


GROWN_TABLES = """SELECT t.relid::regclass::text FROM pg_stat_user_tables t JOIN pg_class c ON c.oid = t.relid
    WHERE t.schemaname = current_schema() AND t.n_mod_since_analyze > greatest(c.reltuples, 0)"""


def analyze_grown_tables() -> None:
    """Renew the planner's statistics of tables with more changes than rows. Skip those that another session maintains.

    Autovacuum waits up to a minute, and never analyses a table with fewer than 50 changes, such as that of conditions.
    The planner then takes the answers of a new site for one row, and may compare each of them with all others.
    """
    if names := [name for (name,) in fetch_rows(GROWN_TABLES)]:
        with connection.cursor() as cursor:
            cursor.execute(f"ANALYZE (SKIP_LOCKED) {', '.join(names)}")


class OctetLength(Func):
    """The size of a text in bytes. The database knows it without reading the text."""

    function = "octet_length"
    output_field = IntegerField()


PAGE_ROWS = 5_000


@contextmanager
def open_raw_cursor() -> Iterator[Any]:
    """Yield psycopg's own cursor.

    In DEBUG, Django's cursor would keep every statement, and so every page, in memory.
    """
    with connection.cursor() as wrapped:
        yield wrapped.cursor


def iterate_key_ranges(keys_sql: str, params: Mapping[str, Any], size: int) -> Iterator[tuple[int, int]]:
    """Return ranges (low, high) of keys, ascending; low is excluded, high is included. Each holds `size` selected keys.

    `keys_sql` selects one column called `id`. It comes from this project's code, never from a request. The keys are
    read once, at the start: rows that are added later belong to no range, and deleted rows leave a range shorter.
    """
    statement = f"""SELECT id FROM (
        SELECT id, row_number() OVER (ORDER BY id) AS place, count(*) OVER () AS total FROM ({keys_sql}) AS keys
    ) AS numbered WHERE place %% %(size)s = 0 OR place = total ORDER BY id"""  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(statement, {**params, "size": size})
        highs = [high for (high,) in cursor.fetchall()]
    return zip([0, *highs[:-1]], highs, strict=True) if highs else iter(())
