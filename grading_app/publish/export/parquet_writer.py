"""Parquet as a stream of bytes, converted from the pages of CSV that the database writes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from grading_app.publish.export.columns import Column, Kind

TYPES: dict[Kind, pa.DataType] = {
    "text": pa.string(),
    "integer": pa.int64(),
    "decimal": pa.decimal128(18, 8),
    "real": pa.float64(),
    "flag": pa.bool_(),
    "time": pa.timestamp("us"),
    "json": pa.string(),
}
ZONED = pa.timestamp("us", "UTC")
ROW_GROUP_BYTES = 24 * 2**20


class ParquetStream:
    """A converter from pages of CSV to pieces of a Parquet file.

    A missing value is unquoted; an empty text is quoted.
    """

    def __init__(self, columns: Sequence[Column], row_group_rows: int) -> None:
        types = {column.name: TYPES[column.kind] for column in columns}
        self._parse = pa_csv.ParseOptions(newlines_in_values=True)
        self._convert = pa_csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            true_values=["true"],
            false_values=["false"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        self._schema = pa.schema([(name, ZONED if kind == TYPES["time"] else kind) for name, kind in types.items()])
        self._row_group_rows = row_group_rows
        self._waiting: list[pa.Table] = []
        self._out = _Outbox()
        self._writer = pa_parquet.ParquetWriter(self._out, self._schema, compression="zstd")

    def add(self, page: bytes) -> list[bytes]:
        """Convert a page, and return the pieces of the file that are complete."""
        # One block for each page: a row is never cut, however long its texts are.
        read_options = pa_csv.ReadOptions(column_names=self._schema.names, block_size=len(page) + 1)
        # A thread of Arrow may hold its input for a moment after the page was read. If that were a Python object, the
        # thread could abort the process while the interpreter shuts down
        # (https://github.com/apache/arrow/issues/34314).
        copy = pa.allocate_buffer(len(page))
        memoryview(copy).cast("B")[:] = page
        table = pa_csv.read_csv(pa.BufferReader(copy), read_options, self._parse, self._convert)
        self._waiting.append(table.cast(self._schema))
        rows = sum(block.num_rows for block in self._waiting)
        if rows >= self._row_group_rows or sum(block.nbytes for block in self._waiting) >= ROW_GROUP_BYTES:
            self._flush()
        return self._out.taken()

    def close(self) -> list[bytes]:
        self._flush()
        self._writer.close()
        return self._out.taken()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting).combine_chunks())
            self._waiting = []


class _Outbox(io.RawIOBase):
    """A write-only file. Its written pieces are taken out, and its position continues."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        self._position += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._position

    def taken(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return pieces
