"""The rows of an archive in temporary tables, with their keys in the file and the keys that they get here."""

# ruff: noqa: S608 (names of tables come from the models of this project, values are parameters)

from __future__ import annotations

import json
import zipfile
from typing import Any

from django.db import connection, models

from datasets_app.models import Item, Norm
from evalsite.lib.checksummed_zip import iterate_pieces
from evalsite.lib.sql import open_raw_cursor
from grading_app.models import (
    Adjudication,
    Grading,
    Preference,
    RatedAnswer,
    RaterAssignment,
    Rating,
    SupersededVerdict,
)
from grading_app.publish.export.study_rows import TABLES, StudyTable
from runs_app.models import Annotation, Attempt, ExternalCall, ItemText, Point, Preflight, Trial

ROWS_OF, KEYS = "import_rows_", "import_keys_"  # The prefixes of the temporary tables of an import.
# Rows that the importing process never reads. All others are few: definitions, conditions, runs.
STREAMED = (
    Item, Norm, Trial, ExternalCall, Attempt, Point, ItemText, RatedAnswer, RaterAssignment, Rating, Grading,
    Preference, SupersededVerdict, Adjudication, Annotation, Preflight,
)  # fmt: skip
WHITE_SPACE = bytes.maketrans(b"\t\r", b"  ")  # Between values of JSON: COPY would end a value or a line there.


def execute(statement: str, params: Any = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)


def select(statement: str, params: Any = None) -> list[Any]:
    """Return the first column of the rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return [row[0] for row in cursor.fetchall()]


def drop_tables() -> None:
    names = [prefix + part.table for part in TABLES for prefix in (ROWS_OF, KEYS)]
    execute(f"DROP TABLE IF EXISTS {', '.join(names)}")


def copy_lines(archive: zipfile.ZipFile, name: str, table: str) -> None:
    """Copy the JSON lines of a part into the column `line` of a table, in pieces of constant size.

    A line is one value of COPY's text format.
    """
    with open_raw_cursor() as cursor, cursor.copy(f"COPY {table} (line) FROM STDIN") as copy:
        for piece in iterate_pieces(archive, name):
            copy.write(piece.translate(WHITE_SPACE).replace(b"\\", b"\\\\"))


def load_part(archive: zipfile.ZipFile, part: StudyTable) -> None:
    """Copy the lines of a part into a temporary table, and give each row a new key."""
    rows, keys = ROWS_OF + part.table, KEYS + part.table
    execute(f"CREATE TEMPORARY TABLE {rows} (place bigint GENERATED ALWAYS AS IDENTITY, line jsonb)")
    if part.file_name in archive.namelist():
        copy_lines(archive, part.file_name, rows)
    key = part.model._meta.pk.attname
    if part.has_key:
        sequence = f"nextval(pg_get_serial_sequence('{part.table}', '{key}'))"
        execute(f"""CREATE TEMPORARY TABLE {keys} AS SELECT old, {sequence} AS new, NULL::text AS name,
            NULL::integer AS version FROM (
            SELECT (line ->> '{key}')::bigint AS old FROM {rows} ORDER BY place) AS numbered""")
        execute(f"CREATE UNIQUE INDEX ON {keys} (old)")
        execute(f"ANALYZE {keys}")
    execute(f"ANALYZE {rows}")


def read_lines(model: type[models.Model]) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a small table with their keys in the file, 0 for a row without a key."""
    lines = select(f"SELECT line FROM {ROWS_OF}{model._meta.db_table} ORDER BY place")
    rows = [line if isinstance(line, dict) else json.loads(line) for line in lines]
    return [(int(row.get("id", 0)), row) for row in rows]


def map_keys(model: type[models.Model]) -> dict[int, int]:
    """Return the key here of each row of a small table, by its key in the file. Some are still to be inserted."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT old, new FROM {KEYS}{model._meta.db_table} ORDER BY old")
        return dict(cursor.fetchall())


def list_new_keys(part: StudyTable) -> list[int]:
    """Return the keys of the rows that this import created. Rows that were here already do not count."""
    return select(
        f"""SELECT m.new FROM {KEYS}{part.table} m
        JOIN {ROWS_OF}{part.table} x ON (x.line ->> 'id')::bigint = m.old ORDER BY m.new"""
    )
