"""SQL that the ORM cannot express: the rows of a fixed statement, and functions of PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection
from django.db.models import Func, IntegerField


def fetch_rows(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Execute the statement and return all of its rows. Values from a request are passed only as parameters."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


class OctetLength(Func):
    """The size of a text in bytes. The database knows it without reading the text."""

    function = "octet_length"
    output_field = IntegerField()
