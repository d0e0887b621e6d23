"""Readers that turn CSV, JSON lines, a JSON array, Parquet or a sheet into rows. They do not interpret columns."""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from datasets_app.importing.limits import MIB, Limits
from datasets_app.importing.parquet_reader import read_parquet
from datasets_app.importing.records import FileError, ReadingReport, TableRow
from datasets_app.importing.spreadsheet_reader import (
    SPREADSHEET_SUFFIXES,
    iterate_rows,
    read_spreadsheet,
    to_value,
)
from evalsite.lib.text.characters import describe_unstorable, replace_unstorable

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet"}) | SPREADSHEET_SUFFIXES
DELIMITERS = ",;\t|"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
FIRST_BYTES_OF_OTHER_FILES = {
    b"%PDF-": "this is a PDF document, not a table; save the table as CSV",
    b"\xd0\xcf\x11\xe0": "this is an old Excel or Word file; save the sheet as .xlsx or CSV",
    b"\x1f\x8b": "this is a gzip file; unpack it first",
    b"7z\xbc\xaf": "this is a 7z archive; upload a zip",
    b"Rar!": "this is a RAR archive; upload a zip",
    b"\x89PNG": "this is one image, not a table; upload a zip of images",
    b"\xff\xd8\xff": "this is one image, not a table; upload a zip of images",
    b"GIF8": "this is one image, not a table; upload a zip of images",
    b"SQLite format 3": "this is an SQLite database; export the table as CSV",
}
Openable = Path | str | BinaryIO
VALUE_BYTES = 8  # Counted per value in addition to its text, so that empty values also count.


@contextmanager
def open_source(source: Openable) -> Iterator[tuple[BinaryIO, str]]:
    """Yield the file, positioned at its start, and its name. Raise FileError if the path cannot be read.

    An already open file stays open.
    """
    if not isinstance(source, Path | str):
        source.seek(0)
        yield source, read_name(source)
        return
    path = Path(source)
    if not path.is_file() or not os.access(path, os.R_OK):
        raise FileError(f"{source}: is not a readable file")
    with path.open("rb") as file:
        yield file, path.name


def read_name(source: Openable) -> str:
    """Return the file's own name, without folders."""
    path = source if isinstance(source, Path | str) else str(getattr(source, "name", "") or "upload")
    return Path(path).name


def hash_file(file: BinaryIO) -> str:
    file.seek(0)
    digest = hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
    file.seek(0)
    return digest


def measure_file(file: BinaryIO) -> int:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    return size


def detect_kind(file: BinaryIO, name: str) -> str:
    """Return "zip", "spreadsheet", "parquet", "json", "jsonl" or "csv".

    The first bytes decide if they are clear, else the suffix of the name. Raise FileError for an empty file, and for a
    file that is clearly of another kind, such as a PDF document.
    """
    head = file.read(4096)
    file.seek(0)
    if not head:
        raise FileError("the file is empty")
    suffix = PurePosixPath(name.lower()).suffix
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "spreadsheet" if suffix in SPREADSHEET_SUFFIXES else "zip"
    if head.startswith(b"PAR1"):
        return "parquet"
    for first_bytes, fault in FIRST_BYTES_OF_OTHER_FILES.items():
        if head.startswith(first_bytes):
            raise FileError(fault)
    if suffix in SPREADSHEET_SUFFIXES:
        raise FileError("this is not a spreadsheet, though its name says so; export the table as CSV")
    if suffix in {".csv", ".tsv"}:
        return "csv"
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    return {b"{": "jsonl", b"[": "json"}.get(start, "jsonl" if suffix in {".jsonl", ".ndjson"} else "csv")


def read_rows(
    file: BinaryIO, name: str, report: ReadingReport, limits: Limits, sheet: str = ""
) -> tuple[list[str], Iterator[TableRow]]:
    """Return the columns of a table and an iterator over its rows. sheet: of a spreadsheet, the sheet to read.

    Raise FileError if the table cannot be read. The iterator may raise it too.
    """
    size = measure_file(file)
    if size > limits.table_bytes:
        raise FileError(f"the table has {size / MIB:.0f} MiB; at most {limits.table_bytes // MIB} MiB are read")
    kind = detect_kind(file, name)
    if kind == "zip":
        raise FileError("this is an archive, not a table")
    if sheet and kind != "spreadsheet":
        raise FileError("map sheet: only a spreadsheet has sheets")
    if kind == "spreadsheet":
        header, cells = read_spreadsheet(file, report, limits, sheet)
        named = _name_columns([str(to_value(cell)) for cell in header], report, limits)
        columns, rows = [name for name in named if name], iterate_rows(cells, named)
    else:
        reader = {"csv": read_csv, "jsonl": read_json_lines, "json": read_json_array, "parquet": read_parquet}[kind]
        columns, rows = reader(file, report, limits)
    _check_names(columns, limits)
    return columns, _limit_rows(rows, name, report, limits)


def check_number_of_columns(number: int, limits: Limits) -> None:
    """Raise FileError if there are too many columns. Readers call this before any work per column."""
    if number > limits.columns:
        raise FileError(f"the table has {number:,} columns; at most {limits.columns} are read")


def _check_names(columns: list[str], limits: Limits) -> None:
    check_number_of_columns(len(columns), limits)
    for position, name in enumerate(columns, 1):
        if len(name) > (most := limits.column_chars):
            raise FileError(f"the name of column {position} has {len(name):,} characters; at most {most}")
        if fault := describe_unstorable(name):
            raise FileError(f"the name of column {position} {fault}")


def _limit_rows(rows: Iterator[TableRow], name: str, report: ReadingReport, limits: Limits) -> Iterator[TableRow]:
    """Yield the rows within the limits. Report a row with unstorable text as an error and skip it."""
    decoded = 0
    for row in rows:
        if row.number > limits.rows:
            raise FileError(f"the table has more than {limits.rows:,} rows; split it into several datasets")
        faults = {}
        for column, value in row.values.items():
            size, faults[column] = _measure_value(value)
            decoded += size
        if decoded > limits.decoded_bytes:
            most = limits.decoded_bytes // MIB
            raise FileError(f"{name} has more than {most} MiB of data once decoded (by row {row.number}); split it")
        bad = next((column for column, fault in faults.items() if fault), None)
        if bad is None:
            yield row
        else:
            report.error(row, replace_unstorable(bad), faults[bad])


def _measure_value(value: Any) -> tuple[int, str]:
    """Return the decoded bytes of a value, and the reason why it cannot be stored ("" if it can)."""
    size, fault, pending = 0, "", [value]
    while pending:
        part = pending.pop()
        size += VALUE_BYTES
        if isinstance(part, str):
            size += len(part) if part.isascii() else len(part.encode("utf-8", "surrogatepass"))
            fault = fault or describe_unstorable(part)
        elif isinstance(part, bytes):
            size += len(part)
        elif isinstance(part, Mapping):
            pending += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            pending += part
    return size, fault


# --- text ---------------------------------------------------------------------------------------------------------


def detect_encoding(file: BinaryIO, report: ReadingReport) -> str:
    """Return "utf-8-sig" or "utf-16", or "cp1252" with a warning if the bytes are neither.

    Raise FileError if they are not cp1252 either.
    """
    head = file.read(4)
    file.seek(0)
    if head.startswith(UTF16_MARKS) and _can_decode(file, "utf-16"):
        return "utf-16"
    if _can_decode(file, "utf-8-sig"):
        return "utf-8-sig"
    if not _can_decode(file, "cp1252"):
        raise FileError("the text is neither UTF-8 nor Windows-1252; save it as UTF-8")
    report.warning(None, "file", "not UTF-8; read as Windows-1252, so look at accents and dashes")
    return "cp1252"


def _can_decode(file: BinaryIO, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        while block := file.read(MIB):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    finally:
        file.seek(0)
    return True


def _open_text(file: BinaryIO, encoding: str) -> io.TextIOWrapper:
    # newline="" splits lines at CR, LF and CR LF, and preserves line ends inside quotes.
    return io.TextIOWrapper(io.BufferedReader(_UnclosableFile(file), MIB), encoding=encoding, newline="")


class _UnclosableFile(io.RawIOBase):
    """A wrapper that keeps a text wrapper from closing the file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self.file.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)


# --- CSV ----------------------------------------------------------------------------------------------------------


def read_csv(file: BinaryIO, report: ReadingReport, limits: Limits) -> tuple[list[str], Iterator[TableRow]]:
    encoding = detect_encoding(file, report)
    delimiter = sniff_delimiter(_open_text(file, encoding).read(64 * 1024))
    file.seek(0)
    csv.field_size_limit(limits.text_chars)  # Applies to the whole process. No other code reads uploaded CSV.
    reader = csv.reader(_iterate_lines(_open_text(file, encoding), limits), delimiter=delimiter, strict=True)
    _, cells = next(_iterate_records(reader), (0, []))
    columns = _name_columns(cells, report, limits)
    return [name for name in columns if name], _iterate_csv_rows(reader, columns, report, delimiter != ",")


def _iterate_lines(text: io.TextIOWrapper, limits: Limits) -> Iterator[str]:
    """Yield lines with their line ends. Raise FileError for an overlong line before all of it is in memory."""
    number = 0
    while line := text.readline(limits.line_chars + 1):
        number += 1
        if len(line) > limits.line_chars:
            raise FileError(f"line {number} is longer than {limits.line_chars:,} characters")
        yield line


def sniff_delimiter(sample: str) -> str:
    """Return the delimiter among `, ; tab |` that splits the header into most columns.

    Each row with another number of columns is then reported as an error.
    """

    def columns_by(delimiter: str) -> int:
        records = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
        try:
            return len(next((record for record in records if record), []))
        except csv.Error:
            return 0

    return max(DELIMITERS, key=columns_by)


def _iterate_records(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the cells of each record that is not blank."""
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except (csv.Error, UnicodeError) as error:
            raise FileError(f"line {line}: {error}; a quote may be missing or not doubled") from None
        if any(cell.strip() for cell in cells):
            yield line, cells


def _name_columns(cells: list[str], report: ReadingReport, limits: Limits) -> list[str]:
    """Return the names of the columns, with "" for an unnamed column, which is left out."""
    if not cells:
        raise FileError("the table has no header")
    check_number_of_columns(len(cells), limits)
    names = [cell.strip() for cell in cells]
    for position, (cell, name) in enumerate(zip(cells, names, strict=True), 1):
        if not name:
            report.warning(None, "header", f"column {position} has no name and is left out")
        elif name != cell:
            report.warning(None, "header", f"column {cell!r} is read as {name!r}")
    twice = sorted(name for name, number in Counter(names).items() if name and number > 1)
    if twice:
        raise FileError(f"the header names a column twice: {', '.join(twice)}")
    return names


def _iterate_csv_rows(
    reader: Any, columns: list[str], report: ReadingReport, decimal_comma: bool
) -> Iterator[TableRow]:
    for number, (line, cells) in enumerate(_iterate_records(reader), 1):
        values = {name: cell for name, cell in zip(columns, cells, strict=False) if name}
        row = TableRow(number, line, values, decimal_comma)
        if len(cells) != len(columns):
            report.error(row, "row", f"has {len(cells)} cells where the header has {len(columns)}")
            continue
        yield row


# --- JSON ---------------------------------------------------------------------------------------------------------


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str) -> Any:
    """Parse JSON without NaN and Infinity. Raise ValueError for anything else, including too deep nesting."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json_lines(file: BinaryIO, report: ReadingReport, limits: Limits) -> tuple[list[str], Iterator[TableRow]]:
    encoding = detect_encoding(file, report)
    columns = _collect_columns(
        islice(_iterate_json_rows(_open_text(file, encoding), ReadingReport(), limits), 200), limits
    )
    file.seek(0)
    return columns, _iterate_json_rows(_open_text(file, encoding), report, limits)


def _iterate_json_rows(lines: io.TextIOWrapper, report: ReadingReport, limits: Limits) -> Iterator[TableRow]:
    number = 0
    for line, text in enumerate(_iterate_lines(lines, limits), 1):
        if not text.strip():
            continue
        number += 1
        try:
            value = parse_json(text)
        except ValueError as error:
            report.error(TableRow(number, line, {}), "row", f"is not JSON: {error}")
            continue
        if isinstance(value, dict):
            yield TableRow(number, line, value)
        else:
            problem = f"is not an object {{...}} but {type(value).__name__}"
            report.error(TableRow(number, line, {}), "row", problem)


def read_json_array(file: BinaryIO, report: ReadingReport, limits: Limits) -> tuple[list[str], Iterator[TableRow]]:
    if measure_file(file) > limits.json_array_bytes:
        raise FileError(f"a JSON array of more than {limits.json_array_bytes // MIB} MiB; save it as JSON lines")
    try:
        values = parse_json(_open_text(file, detect_encoding(file, report)).read())
    except ValueError as error:
        raise FileError(f"the file is not JSON: {error}") from None
    if not isinstance(values, list):
        raise FileError("the file does not contain a JSON array of objects")
    rows = [TableRow(number, None, value) for number, value in enumerate(values, 1) if isinstance(value, dict)]
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            report.error(TableRow(number, None, {}), "row", f"is not an object {{...}} but {type(value).__name__}")
    return _collect_columns(iter(rows), limits), iter(rows)


def _collect_columns(rows: Iterator[TableRow], limits: Limits) -> list[str]:
    """Return every name in the order of its first occurrence. Raise FileError if there are too many."""
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row.values)
        check_number_of_columns(len(names), limits)
    return list(names)
