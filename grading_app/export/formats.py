"""Exports in flat memory: pages by key, formatted by the database itself (COPY), handed on as bytes.

CSV is for spreadsheets and is defused; JSON lines and Parquet are exact.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from django.db import connection

from evalsite.lib.text.pg_text import describe_unstorable
from grading_app.export.columns import Column, exact_cell, json_members, spreadsheet_cell
from grading_app.export.export_tables import FILTERS, SHARED_BY_A_RUN, TABLES, ExportTable
from grading_app.export.key_ranges import PAGE_ROWS, bare_cursor, key_ranges
from runs_app.models import Experiment

ROW_GROUP_ROWS = 50_000
BINARY_HEADER, FIELD_STARTS = 19, 6  # Bytes: of the header without extensions; of a row before its one field.


class ExportError(ValueError):
    """The table, format or filter is not one that exists; the message names those that are."""


@dataclass(frozen=True, slots=True)
class Extract:
    """Which rows of which experiment. `filters` maps names of FILTERS to the value that is wanted."""

    experiment: Experiment
    table: ExportTable
    filters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, experiment: Experiment, table: str, filters: Mapping[str, str] | None = None) -> Extract:
        """Raises ExportError for a table or a filter that does not exist."""
        chosen = TABLES.get(table)
        if chosen is None:
            raise ExportError(f"there is no table {table!r} to export; there are {', '.join(TABLES)}")
        allowed = FILTERS if chosen.has_trials else {}
        strangers = sorted(set(filters or {}) - set(allowed))
        if strangers:
            known = ", ".join(allowed) or "none"
            raise ExportError(f"the table {table} has no filter {', '.join(strangers)}; it has {known}")
        for name, value in (filters or {}).items():
            if fault := describe_unstorable(value):
                raise ExportError(f"the filter {name} {fault}")
        return cls(experiment, chosen, dict(filters or {}))

    def pages(self, copy: str, joined: Callable[[Iterable[bytes]], bytes] = b"".join) -> Iterator[bytes]:
        """What COPY says for each page, its messages (one a row) joined as told.

        `copy` is a statement with `{rows}` where the page's FROM and WHERE go.
        """
        order = f" ORDER BY {self.table.order}" if self.table.order else ""
        statement = copy.format(rows=self.table.rows + self._narrowed + order)
        keys = self.table.keys + self._narrowed
        for section in self._sections():
            known = {**self.filters, "experiment": self.experiment.pk, "section": section}
            for low, high in key_ranges(keys, known, PAGE_ROWS):
                yield _copied(statement, {**known, "low": low, "high": high}, joined)

    @property
    def _narrowed(self) -> str:
        return "".join(f" AND {FILTERS[name]}" for name in self.filters)

    def _sections(self) -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute(f"{self.table.sections} ORDER BY id", {"experiment": self.experiment.pk})
            return [section for (section,) in cursor.fetchall()]


def _copied(statement: str, params: Mapping[str, Any], joined: Callable[[Iterable[bytes]], bytes]) -> bytes:
    """One page, read to its end before it is handed on: a slow reader never holds a statement open."""
    with bare_cursor() as cursor, cursor.copy(statement, params) as copy:
        return joined(copy)


def _fields(messages: Iterable[bytes]) -> bytes:
    """The one field of each row of a binary COPY.

    A row is a number of fields (2 bytes), the length of the field (4 bytes) and the field. The first message begins
    with a header; the last one is a trailer of 2 bytes, of which nothing is left.
    """
    first, *others = messages
    return b"".join([first[BINARY_HEADER + FIELD_STARTS :], *[message[FIELD_STARTS:] for message in others]])


def csv_chunks(extract: Extract) -> Iterator[bytes]:
    """UTF-8 with a header line; a missing value is empty, an empty text is "". Cells that a spreadsheet would run as a
    formula get an apostrophe in front."""
    yield (",".join(column.name for column in extract.table.columns) + "\n").encode()
    yield from extract.pages(_copy_csv(extract.table, spreadsheet_cell))


def jsonl_chunks(extract: Extract) -> Iterator[bytes]:
    """One object a line, the keys in the order of the columns."""
    # Binary is exact, and a quarter faster than undoing the escapes of COPY's text.
    yield from extract.pages(f"COPY (SELECT {_json_line(extract.table)} {{rows}}) TO STDOUT (FORMAT binary)", _fields)


def parquet_chunks(extract: Extract) -> Iterator[bytes]:
    """Compressed with zstd, in row groups of about fifty thousand rows; times in UTC, money as exact decimals."""
    from grading_app.export.parquet_writer import ParquetStream

    stream = ParquetStream(extract.table.columns, ROW_GROUP_ROWS)
    for page in extract.pages(_copy_csv(extract.table, exact_cell)):
        yield from stream.add(page)
    yield from stream.close()


FORMATS: Mapping[str, Callable[[Extract], Iterator[bytes]]] = {
    "csv": csv_chunks,
    "jsonl": jsonl_chunks,
    "parquet": parquet_chunks,
}


def export_chunks(
    experiment: Experiment, table: str, file_format: str, filters: Mapping[str, str] | None = None
) -> Iterator[bytes]:
    """The file in pieces, none of them much larger than a page. ExportError, at once, for what does not exist."""
    if file_format not in FORMATS:
        raise ExportError(f"there is no format {file_format!r}; there are {', '.join(FORMATS)}")
    return FORMATS[file_format](Extract.of(experiment, table, filters))


def write_export(chunks: Iterator[bytes], out: str) -> None:
    """Write to a path, which appears only when it is complete, or to the standard output for "-".

    A piece is written while the database makes the next one.
    """
    with _sink(out) as file, ThreadPoolExecutor(max_workers=1) as writer:
        writing: Future[int] | None = None
        for chunk in chunks:
            if writing:
                writing.result()
            writing = writer.submit(file.write, chunk)
        if writing:
            writing.result()


@contextmanager
def _sink(out: str) -> Iterator[BinaryIO]:
    if out == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(out)
    handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(target)  # Of mode 0600, as a temporary file is: exports are not for every account.
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _json_line(table: ExportTable) -> str:
    shared = len(SHARED_BY_A_RUN)
    if table.columns[:shared] == SHARED_BY_A_RUN:
        members = f"cell.members, ',', {json_members(table.columns[shared:])}"
    else:
        members = json_members(table.columns)
    return rf"concat('{{{{', {members}, E'}}}}\n')"


def _copy_csv(table: ExportTable, cell: Callable[[Column], str]) -> str:
    cells = ", ".join(cell(column) for column in table.columns)
    return f"COPY (SELECT {cells} {{rows}}) TO STDOUT (FORMAT csv)"


__all__ = ["FORMATS", "TABLES", "ExportError", "Extract", "export_chunks", "write_export"]
