"""The writer of imported rows: lines of JSON, which one statement for each table inserts.

The lines of an archive are copied to temporary tables, and their keys are translated there, so a million rows never
pass through Python. Rows of another tool's study have their keys here already, and come in batches.
"""

# ruff: noqa: S608 (names of tables come from the models of this project, values are parameters)

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, models

from datasets_app.models import Item, Norm
from evalsite.lib.checksummed_zip import iterate_pieces
from evalsite.lib.sql import fetch_rows, open_raw_cursor
from grading_app.models import (
    Adjudication,
    Grading,
    Preference,
    RatedAnswer,
    RaterAssignment,
    Rating,
    SupersededVerdict,
)
from grading_app.publish.export.study_rows import StudyTable, translate
from grading_app.study_import.study_files import encode_value
from runs_app.models import Annotation, Attempt, ExternalCall, ItemText, Point, Preflight, Trial

ROWS_OF, KEYS = "import_rows_", "import_keys_"  # The prefixes of the temporary tables of an import.
# Rows that the importing process never reads. All others are few: definitions, conditions, runs.
STREAMED = (
    Item, Norm, Trial, ExternalCall, Attempt, Point, ItemText, RatedAnswer, RaterAssignment, Rating, Grading,
    Preference, SupersededVerdict, Adjudication, Annotation, Preflight,
)  # fmt: skip
ENCODER = json.JSONEncoder(default=encode_value, ensure_ascii=False)
WHITE_SPACE = bytes.maketrans(b"\t\r", b"  ")  # Between values of JSON: COPY would end a value or a line there.


def execute(statement: str, params: Any = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)


def select(statement: str, params: Any = None) -> list[Any]:
    """Return the first column of the rows."""
    return [row[0] for row in fetch_rows(statement, params)]


# --- rows of any import -----------------------------------------------------------------------------------------------


def insert_lines(
    model: type[models.Model],
    lines: str,
    cells: Mapping[str, str],
    params: Mapping[str, Any] | None = None,
    *,
    joins: str = "",
    conflict: str = "",
) -> None:
    """Insert a row for each line, in the order of their places.

    lines: SQL of a table `x` with the columns `place` and `line`. joins: SQL of further tables. cells: SQL of each
    column, where `r` is the line as a row of the table. A column that the line lacks has its default, or an empty text.
    """
    table = model._meta.db_table
    defaults = {
        column.attname: column.get_default()
        for column in model._meta.concrete_fields
        if column.has_default() or (column.blank and column.empty_strings_allowed and not column.null)
        if not (column.primary_key or column.is_relation)
    }
    names = ", ".join(map(connection.ops.quote_name, cells))
    execute(
        f"""INSERT INTO {table} ({names}) SELECT {", ".join(cells.values())} FROM {lines}
        CROSS JOIN LATERAL jsonb_populate_record(NULL::{table}, %(defaults)s::jsonb || x.line) r {joins}
        ORDER BY x.place {conflict}""",
        {**(params or {}), "defaults": json.dumps(defaults, cls=DjangoJSONEncoder)},
    )


def reserve_keys(model: type[models.Model], number: int) -> list[int]:
    """Return keys for as many new rows."""
    sequence = f"pg_get_serial_sequence('{model._meta.db_table}', '{model._meta.pk.attname}')"
    return select(f"SELECT nextval({sequence}) FROM generate_series(1, %s)", [number])


def write_rows(model: type[models.Model], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, by the columns of the database. All rows have a key, or none, and then get the next ones."""
    if not rows:
        return
    columns = [column.attname for column in model._meta.concrete_fields]
    key = model._meta.pk.attname
    cells = {name: f"r.{connection.ops.quote_name(name)}" for name in columns if name != key or key in rows[0]}
    lines = "\n".join(map(ENCODER.encode, rows))
    source = "(SELECT line::jsonb, place FROM string_to_table(%(lines)s, E'\\n') WITH ORDINALITY AS t (line, place)) x"
    insert_lines(model, source, cells, {"lines": lines})


# --- lines of an archive ----------------------------------------------------------------------------------------------


def load_lines(archive: zipfile.ZipFile, name: str, table: str, columns: Sequence[str] = ("id",)) -> None:
    """Copy the lines of a part into a table of this transaction, in pieces of constant size.

    columns: keys to read from each line.
    """
    keys = "".join(f", {key} bigint GENERATED ALWAYS AS ((line ->> '{key}')::bigint) STORED" for key in columns)
    execute(f"""DROP TABLE IF EXISTS {table};
        CREATE TEMPORARY TABLE {table} (place bigint GENERATED ALWAYS AS IDENTITY, line jsonb{keys})
        ON COMMIT DROP""")
    if name in archive.namelist():
        # A line is one value of COPY's text format.
        with open_raw_cursor() as cursor, cursor.copy(f"COPY {table} (line) FROM STDIN") as copy:
            for piece in iterate_pieces(archive, name):
                copy.write(piece.translate(WHITE_SPACE).replace(b"\\", b"\\\\"))
    execute(f"ANALYZE {table}")


def load_part(archive: zipfile.ZipFile, part: StudyTable) -> None:
    """Copy the lines of a part into a temporary table, and give each row a new key."""
    rows, keys = ROWS_OF + part.table, KEYS + part.table
    load_lines(archive, part.file_name, rows)
    if part.has_key:
        sequence = f"nextval(pg_get_serial_sequence('{part.table}', '{part.model._meta.pk.attname}'))"
        execute(f"""DROP TABLE IF EXISTS {keys};
            CREATE TEMPORARY TABLE {keys} ON COMMIT DROP AS
            SELECT old, {sequence} AS new, NULL::text AS name, NULL::integer AS version
            FROM (SELECT id AS old FROM {rows} ORDER BY place) AS numbered;
            CREATE UNIQUE INDEX ON {keys} (old);
            ANALYZE {keys}""")


def insert_part(
    part: StudyTable,
    local: dict[str, str],
    params: Mapping[str, Any] | None = None,
    *,
    lookup: tuple[str, str, str] = (KEYS, "old", "new"),
    joins: str = "",
) -> None:
    """Insert the loaded rows of a part, with the keys in them translated.

    local: SQL of the columns that the file does not hold. lookup: the prefix of the tables `m` of keys, with the
    columns of a key in the file and of the key here.
    """
    prefix, old, new = lookup
    cells = {column.attname: translate(column, "r", *lookup) for column in part.list_columns()} | local
    if part.has_key:
        cells[part.model._meta.pk.attname] = f"m.{new}"
        joins = f"JOIN {prefix}{part.table} m ON m.{old} = x.id {joins}"
    insert_lines(part.model, f"{ROWS_OF}{part.table} x", cells, params, joins=joins)


def read_lines(model: type[models.Model]) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a small table with their keys in the file, 0 for a row without a key.

    A column that a line lacks has its default, as in `insert_lines`.
    """
    lines = select(f"SELECT line FROM {ROWS_OF}{model._meta.db_table} ORDER BY place")
    rows = [line if isinstance(line, dict) else json.loads(line) for line in lines]
    defaults = {column.attname: column.get_default() for column in model._meta.concrete_fields}
    return [(int(row.get("id") or 0), {**defaults, **row}) for row in rows]


def map_keys(model: type[models.Model]) -> dict[int, int]:
    """Return the key here of each row of a small table, by its key in the file. Some are still to be inserted."""
    return dict(fetch_rows(f"SELECT old, new FROM {KEYS}{model._meta.db_table} ORDER BY old"))


def list_new_keys(part: StudyTable) -> list[int]:
    """Return the keys of the rows that this import created. Rows that were here already do not count."""
    return select(f"SELECT m.new FROM {KEYS}{part.table} m JOIN {ROWS_OF}{part.table} x ON x.id = m.old ORDER BY m.new")
