"""Tables of Parquet and DuckDB files, written as lines of JSON in the reader process.

An importer of studies reads the lines. So native decoders only run in a process with limits. duckdb and pyarrow are
imported only when such a file is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets_app.importing.limits import MIB, Limits
from datasets_app.importing.parquet_reader import read_parquet, to_json_value
from datasets_app.importing.records import FileError, ReadingReport

READER = "datasets_app.importing.table_dump:dump"
Rows = Iterator[dict[str, Any]]
BATCH_ROWS = 256
DUCKDB_MAGIC, MAGIC_AT = b"DUCK", 8
UNREADABLE = (ValueError, OverflowError, RecursionError)  # A time outside Python's calendar, for example.
# Nothing but the file itself can be read or written, and a query cannot change that.
DUCKDB_CONFIG = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_community_extensions": "false",
    "max_temp_directory_size": "0B",
    "memory_limit": "768MB",
    "threads": "1",
    "lock_configuration": "true",
}


def is_duckdb(file: Path) -> bool:
    """Return whether the file starts as DuckDB files do. This does not need duckdb."""
    with file.open("rb") as content:
        return content.read(MAGIC_AT + len(DUCKDB_MAGIC))[MAGIC_AT:] == DUCKDB_MAGIC


def dump(request: Mapping[str, Any], out: Path, limits: Limits) -> None:
    """Write the tables that a request of `limited_reader.run_reader` names to `out`, one `TABLE.jsonl` each.

    A Parquet file is a table with the name of its part. Of a DuckDB file, the tables of `request["tables"]` that it has
    are written. Raise FileError, which names the file, the table and the row.
    """
    written = 0
    for part, (path, name) in request["files"].items():
        file = Path(path)
        has_tables = is_duckdb(file)
        found = (
            _read_duckdb_tables(file, request["tables"], limits)
            if has_tables
            else _read_parquet_table(file, part, limits)
        )
        try:
            for table, rows in found:
                with (out / f"{table}.jsonl").open("w", encoding="utf-8") as lines:
                    written += _write_rows(f"{name}, {table}" if has_tables else name, rows, lines, limits)
        except FileError as error:
            text = str(error).replace(str(file), name)
            raise FileError(text if text.startswith(name) else f"{name}: {text}") from None
        if written > limits.unpacked_bytes:
            raise FileError(f"{name}: the tables hold more than {limits.unpacked_bytes // MIB} MiB")


def _write_rows(where: str, rows: Rows, lines: Any, limits: Limits) -> int:
    """Write the rows, each as a line. Return the number of characters."""
    written = 0
    for number, row in enumerate(rows, start=1):
        for column, value in row.items():
            if isinstance(value, str) and len(value) > limits.line_chars:
                raise FileError(f"{where}, row {number}: {column} is longer than {limits.line_chars:,} characters")
        try:
            line = json.dumps({name: to_json_value(value) for name, value in row.items()}, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise FileError(f"{where}, row {number}: {error}") from None
        written += lines.write(line + "\n")
        if written > limits.unpacked_bytes:
            raise FileError(f"{where}: more than {limits.unpacked_bytes // MIB} MiB")
    return written


def _read_parquet_table(file: Path, table: str, limits: Limits) -> Iterator[tuple[str, Rows]]:
    with file.open("rb") as content:
        _, rows = read_parquet(content, ReadingReport(), limits)
        yield table, (row.values for row in rows)


def _read_duckdb_tables(file: Path, tables: Sequence[str], limits: Limits) -> Iterator[tuple[str, Rows]]:
    """Yield each table that is there with its rows. Views are not read, because their queries come from the file."""
    import duckdb

    try:
        database = duckdb.connect(str(file), read_only=True, config=DUCKDB_CONFIG)
        # The whole name: the file may hold a macro `duckdb_tables` that lists its views.
        query = "SELECT table_name FROM system.main.duckdb_tables() WHERE schema_name = 'main' AND NOT internal"
        present = {name for (name,) in database.execute(query).fetchall()}
        for table in tables:
            if table in present:
                yield table, _read_duckdb_rows(database, table, limits)
    except duckdb.OutOfMemoryException:
        raise MemoryError from None
    except duckdb.Error as error:
        raise FileError(f"the database cannot be read: {_get_first_line(error)}") from None


def _read_duckdb_rows(database: Any, table: str, limits: Limits) -> Rows:
    """Yield the rows of a table in the order in which they were written."""
    import duckdb

    number = 0
    try:
        answer = database.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - one of the caller's own names
        columns = [column[0] for column in answer.description]
        if len(columns) > limits.columns:
            raise FileError(f"{table} has {len(columns):,} columns; at most {limits.columns} are read")
        while batch := answer.fetchmany(BATCH_ROWS):
            for values in batch:
                number += 1
                if number > limits.rows:
                    raise FileError(f"{table} has more than {limits.rows:,} rows")
                yield dict(zip(columns, values, strict=True))
    except duckdb.OutOfMemoryException:
        raise MemoryError from None
    except (duckdb.Error, *UNREADABLE) as error:
        raise FileError(f"{table}, after row {number}: {_get_first_line(error)}") from None


def _get_first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
