"""Rows of a fixed SQL statement, for aggregates that the ORM cannot express."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection


def fetch_rows(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Execute the statement and return all of its rows. Values from a request are passed only as parameters."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
