"""Tables of a study in Parquet or DuckDB files, read by a process with limits, as rows with their places."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasets_app.importing.limited_reader import FileToRead, run_reader
from datasets_app.importing.limits import LIMITS
from datasets_app.importing.records import FileError, ScratchFolder
from datasets_app.importing.table_dump import READER
from grading_app.study_import.study import StudyError

CACHE_KIB = 8192


class KeyIndex:
    """Values by key in a temporary SQLite file. Its memory does not depend on the number of keys.

    A key is a sequence of texts and numbers, and only its digest is stored. SQLite deletes the file with the object.
    """

    def __init__(self) -> None:
        # One cursor: a connection keeps a reference to each.
        self._cursor = sqlite3.connect("", isolation_level=None, check_same_thread=False).cursor()
        for statement in (
            f"PRAGMA cache_size = -{CACHE_KIB}",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "CREATE TABLE entry (key BLOB PRIMARY KEY, value) WITHOUT ROWID",
            "BEGIN",
        ):
            self._cursor.execute(statement)

    def add(self, key: Sequence[object], value: str | None = None) -> bool:
        """Store the value unless the key has one already. Return whether the key is new."""
        self._cursor.execute("INSERT OR IGNORE INTO entry VALUES (?, ?)", (_hash_key(key), value))
        return self._cursor.rowcount == 1

    def get(self, key: Sequence[object]) -> str | None:
        row = self._cursor.execute("SELECT value FROM entry WHERE key = ?", (_hash_key(key),)).fetchone()
        return None if row is None else row[0]

    def append_number(self, key: Sequence[object], number: int) -> None:
        """Add a number to the list of the key."""
        self._cursor.execute(
            "INSERT INTO entry VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = value || ' ' || excluded.value",
            (_hash_key(key), str(number)),
        )

    def list_numbers(self, key: Sequence[object]) -> list[int]:
        """Return the numbers of the key, in the order in which they were added."""
        return [int(number) for number in (self.get(key) or "").split()]

    def count(self, key: Sequence[object]) -> int:
        """Count an occurrence of the key. Return the number of its earlier ones."""
        row = self._cursor.execute(
            "INSERT INTO entry VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET value = value + 1 RETURNING value",
            (_hash_key(key),),
        ).fetchone()
        return int(row[0]) - 1


def _hash_key(key: Sequence[object]) -> bytes:
    return hashlib.blake2b(repr(tuple(key)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


# A study has more rows than a dataset: each answer is a row.
STUDY_LIMITS = replace(LIMITS, rows=2_000_000, decoded_bytes=4 * LIMITS.decoded_bytes)
TableRow = dict[str, Any]
Columns = Mapping[str, tuple[type, ...]]  # The types of the columns of a table.


@dataclass(frozen=True)
class StoredTables:
    """The tables of a study's files. They are lines of JSON in a temporary folder that exists as long as this object.

    places: the file of each table, and the table's name too if the file has several.
    """

    places: Mapping[str, str]
    scratch: ScratchFolder

    def file(self, table: str) -> Path:
        return self.scratch.path / f"{table}.jsonl"

    def has(self, table: str) -> bool:
        return self.file(table).exists()

    def rows(self, table: str) -> Iterator[tuple[str, TableRow]]:
        """Yield each row with its place, such as `results.duckdb, trials, row 2`. Rows count from 1."""
        yield from ((where, row) for where, (_, row) in self.placed_rows(table))

    def placed_rows(self, table: str) -> Iterator[tuple[str, tuple[int, TableRow]]]:
        """Yield the offset of each row in the table's file and the row, with its place."""
        if not self.has(table):
            return
        offset = 0
        with self.file(table).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield f"{self.places[table]}, row {number}", (offset, json.loads(line))
                offset += len(line)

    def count(self, table: str) -> int:
        return sum(1 for _ in self.rows(table))


def read_database(file: Path, tables: Sequence[str]) -> StoredTables:
    """Return the named tables of a DuckDB file, as far as it has them. Raise StudyError if it cannot be read."""
    return StoredTables({table: f"{file.name}, {table}" for table in tables}, _read({"file": file}, tables))


def read_parquet_files(files: Mapping[str, Path]) -> StoredTables:
    """Return the tables of Parquet files, by name. Raise StudyError if one cannot be read."""
    return StoredTables({table: file.name for table, file in files.items()}, _read(files, []))


def _read(files: Mapping[str, Path], tables: Sequence[str]) -> ScratchFolder:
    scratch = ScratchFolder()
    parts = {part: FileToRead(file, file.name) for part, file in files.items()}
    try:
        run_reader(scratch, READER, parts, STUDY_LIMITS, tables=list(tables))
    except FileError as error:
        raise StudyError([str(error)]) from error
    return scratch


def find_column_problems(row: TableRow, columns: Columns, never_null: Sequence[str]) -> Iterator[str]:
    """Yield a problem for each column that is missing, that must have a value, or whose value has another type."""
    yield from (f"{name} is missing" for name in columns if name not in row)
    for name, kinds in columns.items():
        value = row.get(name)
        if value is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            yield f"{name} is {type(value).__name__}, not {kinds[0].__name__}"
    yield from (f"{name} must not be empty" for name in never_null if row.get(name) in (None, ""))
