"""Exports in constant memory: the database formats pages of rows (COPY), and their bytes are passed on.

CSV is for spreadsheets, so formulas are escaped. JSON lines and Parquet are exact.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from evalsite.lib.sql import PAGE_ROWS, fetch_rows, iterate_key_ranges, open_raw_cursor
from evalsite.lib.text.characters import describe_unstorable
from evalsite.lib.text.names import UnknownNameError
from evalsite.lib.web.filters import read_parameters
from grading_app.publish.export.columns import SHARED_BY_A_RUN, Column, exact_cell, json_members, spreadsheet_cell
from grading_app.publish.export.export_tables import TABLES, ExportTable
from grading_app.publish.export.task_records import RECORDS, record_chunks
from grading_app.publish.export.wide_tables import BUILDERS, OPTIONS, WideTableError
from runs_app.models import Condition, Experiment, Trial

# Each filter reads only the trial (t), so it applies to the keys as well as to the rows. The names are those of the
# trial list, so a filtered list can be exported as it is shown. `Extract.of` turns names of waves and dimensions into
# their keys.
_ANNOTATED = """EXISTS (SELECT FROM runs_app_annotation fa WHERE NOT fa.removed AND fa.kind = '{kind}' AND {text}
    (fa.trial_id = t.id OR fa.trial_id IS NULL AND fa.item_id = t.item_id))"""
FILTERS: Mapping[str, str] = {
    "status": "t.status = %(status)s",
    "condition": """t.run_id IN (SELECT fr.id FROM runs_app_run fr JOIN runs_app_condition fc ON fc.id = fr.condition_id
        WHERE %(condition)s IN (fc.condition_id, fc.id::text))""",
    "wave": "t.run_id IN (SELECT fr.id FROM runs_app_run fr WHERE fr.wave_id::text = %(wave)s)",
    "run": "t.run_id::text = %(run)s",
    "item": "t.item_id IN (SELECT id FROM datasets_app_item WHERE key = %(item)s)",
    "category": "t.item_id IN (SELECT id FROM datasets_app_item WHERE category = %(category)s)",
    "point": """t.item_id IN (SELECT fi.id FROM datasets_app_item fi WHERE fi.metadata ? 'params' AND NOT EXISTS (
        SELECT FROM jsonb_each_text(%(point)s::jsonb) AS wanted (name, value)
        WHERE jsonb_extract_path_text(fi.metadata, 'params', wanted.name) IS DISTINCT FROM wanted.value))""",
    "dimension": "t.dimension_id::text = %(dimension)s",
    "rating": "t.rating::text = %(rating)s",
    "error": "t.error_class = %(error)s",
    "empty": "(t.status = 'done' AND t.answer = '')::text = %(empty)s",
    "unparsed": "(t.parse_error <> '')::text = %(unparsed)s",
    "truncated": "t.truncated::text = %(truncated)s",
    "refused": "t.refused::text = %(refused)s",
    "from_cache": "t.from_cache::text = %(from_cache)s",
    "contains": "strpos(lower(t.answer), lower(%(contains)s)) > 0",
    "flag": f"({_ANNOTATED.format(kind='flag', text='')})::text = %(flag)s",
    "tag": _ANNOTATED.format(kind="tag", text=r"fa.text = regexp_replace(lower(btrim(%(tag)s)), '\s+', '-', 'g') AND"),
    "note": _ANNOTATED.format(kind="note", text="strpos(lower(fa.text), lower(%(note)s)) > 0 AND"),
}


TRUE_OR_FALSE = ("true", "false")
FILTER_VALUES: Mapping[str, Sequence[str]] = {
    "status": Trial.Status.values,
    **dict.fromkeys(("empty", "unparsed", "truncated", "refused", "from_cache", "flag"), TRUE_OR_FALSE),
}
"""The values of filters that have few. Another one would select no row, as if there were none."""
ONLY_JSONL = f"the table {RECORDS} has only the format jsonl"
TABLE_NAMES = (*TABLES, *BUILDERS, RECORDS)
ROW_GROUP_ROWS = 50_000
BINARY_HEADER, FIELD_STARTS = 19, 6  # Bytes: the header without extensions; the start of a row before its only field.


class ExportError(ValueError):
    """A table, format or filter that does not exist. The message lists the ones that do."""


def ignore_rows(n: int) -> None:
    """Count no rows."""


@dataclass(frozen=True, slots=True)
class Extract:
    """A selection of rows of an experiment. `filters` maps names of FILTERS to the wanted value.

    `count_rows` receives the number of rows of each page.
    """

    experiment: Experiment
    table: ExportTable
    filters: Mapping[str, str] = field(default_factory=dict)
    count_rows: Callable[[int], None] = ignore_rows

    @classmethod
    def of(cls, experiment: Experiment, table: str, filters: Mapping[str, str] | None = None) -> Extract:
        """Return the selection. Raise ExportError for a table or a filter that does not exist.

        `filters` may also hold the table's OPTIONS.
        """
        row_filters, options = dict(filters or {}), OPTIONS.get(table, ())
        definition = _find_table(
            experiment, table, {name: row_filters.pop(name) for name in options if name in row_filters}
        )
        table_filters = FILTERS if definition.has_trials else {}
        strangers = sorted(set(row_filters) - set(table_filters))
        if strangers:
            available = ", ".join([*options, *table_filters]) or "none"
            raise ExportError(f"the table {table} has no filter {', '.join(strangers)}; it has {available}")
        for name, value in row_filters.items():
            if fault := describe_unstorable(value):
                raise ExportError(f"the filter {name} {fault}")
            allowed = FILTER_VALUES.get(name, (value,))
            if allowed is TRUE_OR_FALSE:
                row_filters[name] = value = value.lower()
            if value not in allowed:
                raise ExportError(f"the filter {name} has no value {value!r}; it has {', '.join(allowed)}")
        try:
            if "wave" in row_filters:
                row_filters["wave"] = str(experiment.find_wave(row_filters["wave"]).pk)
            if "dimension" in row_filters:
                row_filters["dimension"] = str(experiment.find_dimension(row_filters["dimension"]).pk)
            if "condition" in row_filters:
                conditions = list(Condition.objects.filter(experiment=experiment).values_list("pk", "condition_id"))
                if not any(row_filters["condition"] in (str(pk), name) for pk, name in conditions):
                    names = ", ".join(name for _, name in conditions[:20])
                    raise ExportError(
                        f"there is no condition {row_filters['condition']!r}; there are {names or 'none'}"
                    )
        except UnknownNameError as error:
            raise ExportError(str(error)) from error
        if "point" in row_filters:
            try:
                row_filters["point"] = json.dumps(read_parameters(row_filters["point"]))
            except ValueError as error:
                raise ExportError("the filter point needs parameters as name=value, joined by &") from error
        return cls(experiment, definition, row_filters)

    def pages(self, copy: str, join: Callable[[Iterable[bytes]], bytes] = b"".join) -> Iterator[bytes]:
        """Yield the output of COPY for each page. `joined` joins the messages of a page, one for each row.

        `copy` is a statement with `{rows}` in place of the page's FROM and WHERE.
        """
        group = f" GROUP BY {self.table.group}" if self.table.group else ""
        statement = copy.format(rows=self.table.rows + self._filter_sql + group + self.table.ordering)
        keys = self.table.keys + self._filter_sql
        for section in self._list_sections():
            params = {**self.filters, "experiment": self.experiment.pk, "section": section}
            for low, high in iterate_key_ranges(keys, params, PAGE_ROWS):
                page, n_rows = _copy_page(statement, {**params, "low": low, "high": high}, join)
                self.count_rows(n_rows)
                yield page

    def read_lines(self, after: tuple[int, int], limit: int) -> tuple[bytes, tuple[int, int] | None]:
        """Return up to `limit` rows after a position as JSON lines, and the position of the last one.

        A position is a section and a key in it; (0, 0) is before the first row. None: no row follows. Rows that are
        added between two calls never shift the others.
        """
        statement = _build_json_copy(self.table).format(rows=self.table.rows + self._filter_sql + self.table.ordering)
        select_keys = f"""SELECT id FROM ({self.table.keys}{self._filter_sql}) AS keys
            WHERE id > %(low)s ORDER BY id LIMIT %(limit)s"""  # noqa: S608 - fixed text
        lines: list[bytes] = []
        left, last = limit, after
        for section in self._list_sections():
            if section < after[0]:
                continue
            params: dict[str, Any] = {**self.filters, "experiment": self.experiment.pk, "section": section}
            low = after[1] if section == after[0] else 0
            keys = [key for (key,) in fetch_rows(select_keys, {**params, "low": low, "limit": left + 1})]
            if keys and not left:
                return b"".join(lines), last
            if shown := keys[:left]:
                lines.append(_copy_page(statement, {**params, "low": low, "high": shown[-1]}, _join_fields)[0])
                left, last = left - len(shown), (section, shown[-1])
            if len(keys) > len(shown):
                return b"".join(lines), last
        return b"".join(lines), None

    @property
    def _filter_sql(self) -> str:
        return "".join(f" AND {FILTERS[name]}" for name in self.filters)

    def _list_sections(self) -> list[int]:
        rows = fetch_rows(f"{self.table.sections} ORDER BY id", {"experiment": self.experiment.pk})
        return [section for (section,) in rows]


def _find_table(experiment: Experiment, name: str, options: Mapping[str, str]) -> ExportTable:
    if name not in TABLE_NAMES:
        raise ExportError(f"there is no table {name!r} to export; there are {', '.join(TABLE_NAMES)}")
    if name == RECORDS:
        raise ExportError(ONLY_JSONL)
    try:
        return TABLES.get(name) or BUILDERS[name](experiment, options)
    except WideTableError as error:
        raise ExportError(str(error)) from error


def _copy_page(
    statement: str, params: Mapping[str, Any], join: Callable[[Iterable[bytes]], bytes]
) -> tuple[bytes, int]:
    """Return one page, read to its end, and its number of rows. So a slow reader never keeps a statement open."""
    with open_raw_cursor() as cursor:
        with cursor.copy(statement, params) as copy:
            page = join(copy)
        return page, int(cursor.rowcount)


def _join_fields(messages: Iterable[bytes]) -> bytes:
    """Return the only field of each row of a binary COPY, joined.

    A row is a number of fields (2 bytes), the length of the field (4 bytes) and the field. The first message begins
    with a header. The last message is a trailer of 2 bytes, which gives nothing.
    """
    first_message, *later_messages = messages
    return b"".join(
        [first_message[BINARY_HEADER + FIELD_STARTS :], *[message[FIELD_STARTS:] for message in later_messages]]
    )


def csv_chunks(extract: Extract) -> Iterator[bytes]:
    """Yield CSV in UTF-8 with a header line. A missing value is empty; an empty text is "".

    Cells that a spreadsheet would run as a formula get an apostrophe in front.
    """
    yield (",".join(column.name for column in extract.table.columns) + "\n").encode()
    yield from extract.pages(_build_csv_copy(extract.table, spreadsheet_cell))


def jsonl_chunks(extract: Extract) -> Iterator[bytes]:
    """Yield one object per line, with the keys in the order of the columns."""
    yield from extract.pages(_build_json_copy(extract.table), _join_fields)


def parquet_chunks(extract: Extract) -> Iterator[bytes]:
    """Yield Parquet, compressed with zstd, in row groups of about 50,000 rows.

    Times are UTC; money is exact decimals. A thread converts a page while the database formats the next one.
    """
    from grading_app.publish.export.parquet_writer import ParquetStream

    stream = ParquetStream(extract.table.columns, ROW_GROUP_ROWS)
    converting: Future[list[bytes]] | None = None
    with ThreadPoolExecutor(max_workers=1) as converter:
        for page in extract.pages(_build_csv_copy(extract.table, exact_cell)):
            if converting:
                yield from converting.result()
            converting = converter.submit(stream.add, page)
        if converting:
            yield from converting.result()
    yield from stream.close()


FORMATS: Mapping[str, Callable[[Extract], Iterator[bytes]]] = {
    "csv": csv_chunks,
    "jsonl": jsonl_chunks,
    "parquet": parquet_chunks,
}


def export_chunks(
    experiment: Experiment,
    table: str,
    file_format: str,
    filters: Mapping[str, str] | None = None,
    count_rows: Callable[[int], None] = ignore_rows,
) -> Iterator[bytes]:
    """Return the file in pieces of about a page each. Raise ExportError at once for anything that does not exist.

    `count_rows` receives the number of rows of each piece.
    """
    if table == RECORDS:
        if file_format != "jsonl":
            raise ExportError(ONLY_JSONL)
        if filters:
            raise ExportError(f"the table {RECORDS} has no filter {', '.join(sorted(filters))}; it has none")
        if not experiment.dataset.is_parametric:
            raise ExportError(f"the table {RECORDS} is for parametric tasks, and {experiment.dataset} has none")
        return _count_lines(record_chunks(experiment), count_rows)
    if file_format not in FORMATS:
        raise ExportError(f"there is no format {file_format!r}; there are {', '.join(FORMATS)}")
    return FORMATS[file_format](replace(Extract.of(experiment, table, filters), count_rows=count_rows))


def _count_lines(pages: Iterator[bytes], count_rows: Callable[[int], None]) -> Iterator[bytes]:
    for page in pages:
        count_rows(page.count(b"\n"))
        yield page


def write_export(chunks: Iterator[bytes], out: str) -> int:
    """Write to a path, or to the standard output for "-", and return the number of bytes.

    The file appears at the path only when it is complete. A piece is written while the database prepares the next one.
    """
    with _open_sink(out) as file, ThreadPoolExecutor(max_workers=1) as writer:
        writing: Future[int] | None = None
        n_bytes = 0
        for chunk in chunks:
            n_bytes += len(chunk)
            if writing:
                writing.result()
            writing = writer.submit(file.write, chunk)
        if writing:
            writing.result()
    return n_bytes


@contextmanager
def _open_sink(out: str) -> Iterator[BinaryIO]:
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
        # The mode stays 0600, as for a temporary file: other accounts must not read exports.
        Path(draft).replace(target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _build_json_copy(table: ExportTable) -> str:
    # Binary is exact, and a quarter faster than reversing the escapes of COPY's text format.
    shared_count = len(SHARED_BY_A_RUN)
    if table.columns[:shared_count] == SHARED_BY_A_RUN:
        members = f"cell.members, ',', {json_members(table.columns[shared_count:])}"
    else:
        members = json_members(table.columns)
    line = rf"concat('{{{{', {members}, E'}}}}\n')"
    return f"COPY (SELECT {line} {{rows}}) TO STDOUT (FORMAT binary)"


def _build_csv_copy(table: ExportTable, cell: Callable[[Column], str]) -> str:
    cells = ", ".join(cell(column) for column in table.columns)
    return f"COPY (SELECT {cells} {{rows}}) TO STDOUT (FORMAT csv)"


__all__ = ["FORMATS", "RECORDS", "TABLES", "TABLE_NAMES", "ExportError", "Extract", "export_chunks", "write_export"]
