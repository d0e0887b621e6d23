"""The reader of Parquet files, in small batches. pyarrow is imported only when a Parquet file is read."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

from datasets_app.importing.limits import MIB, Limits
from datasets_app.importing.records import FileError, ReadingReport, TableRow

BATCH_ROWS = 256
BROKEN = (OSError, ValueError, OverflowError, RecursionError)  # Most pyarrow errors derive from these.


def read_parquet(file: BinaryIO, report: ReadingReport, limits: Limits) -> tuple[list[str], Iterator[TableRow]]:
    """Return columns and rows. Times become ISO text, decimals become text, and non-finite numbers become None."""
    import pyarrow
    from pyarrow import parquet

    try:
        header = parquet.ParquetFile(file)
        check_size(header.metadata, len(header.schema_arrow.names), limits)
        schema = header.schema
        leaves = (schema.column(index) for index in range(len(schema)))
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        # As a dictionary column, a text that a million rows repeat is in memory once until its rows are built.
        table = parquet.ParquetFile(file, read_dictionary=texts)
    except (pyarrow.ArrowException, *BROKEN) as error:
        raise FileError(f"the file is not Parquet: {error}") from None
    columns = list(table.schema_arrow.names)
    if len(set(columns)) < len(columns):
        raise FileError("the table names a column twice")
    return columns, _iterate_rows(table, limits)


def check_size(metadata: Any, columns: int, limits: Limits) -> None:
    """Raise FileError if the header declares too much, before any page is decoded.

    A few kilobytes of Parquet can decode to gigabytes.
    """
    if columns > limits.columns:
        raise FileError(f"the table has {columns:,} columns; at most {limits.columns} are read")
    if metadata.num_rows > limits.rows:
        raise FileError(f"the table has {metadata.num_rows:,} rows; at most {limits.rows:,} are read")
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    values = sum(group.column(index).num_values for group in groups for index in range(metadata.num_columns))
    if max(sum(group.total_byte_size for group in groups), 8 * values) > limits.decoded_bytes:
        raise FileError(f"the table has more than {limits.decoded_bytes // MIB} MiB of data once decoded")


def _iterate_rows(table: Any, limits: Limits) -> Iterator[TableRow]:
    import pyarrow

    number = 0
    try:
        for batch in table.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
            for values in _decode_batch(batch, limits):
                number += 1
                yield TableRow(number, None, {name: to_json_value(value) for name, value in values.items()})
    except pyarrow.ArrowMemoryError:
        raise MemoryError from None
    except (pyarrow.ArrowException, *BROKEN) as error:
        raise FileError(f"after row {number}: {error}") from None


def _decode_batch(batch: Any, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch. Split it in halves while it would decode to more than `limits.image_bytes`."""
    repeated = sum(_count_repeated_bytes(column) for column in batch.columns)
    if batch.nbytes + repeated <= limits.image_bytes:
        yield from batch.to_pylist()
    elif batch.num_rows > 1:
        middle = batch.num_rows // 2
        yield from _decode_batch(batch.slice(0, middle), limits)
        yield from _decode_batch(batch.slice(middle), limits)
    elif batch.num_rows and repeated <= limits.image_bytes:
        yield from batch.to_pylist()  # The dictionary is large, but the one row is small.
    elif batch.num_rows:
        raise FileError(f"a row has more than {limits.image_bytes // MIB} MiB")


def _count_repeated_bytes(array: Any) -> int:
    """Return the bytes of an array's texts, counting each occurrence, without decoding them."""
    import pyarrow
    from pyarrow import compute

    if isinstance(array, pyarrow.DictionaryArray):
        lengths = compute.binary_length(array.dictionary)
        return compute.sum(lengths.take(array.indices)).as_py() or 0
    if isinstance(array, pyarrow.StructArray):
        return sum(_count_repeated_bytes(member) for member in array.flatten())
    if isinstance(array, pyarrow.ListArray | pyarrow.LargeListArray):
        return _count_repeated_bytes(array.flatten())
    return 0


def to_json_value(value: Any) -> Any:
    """Return an Arrow value as JSON data. Bytes stay bytes, because a column may contain images."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): to_json_value(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(member) for member in value]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    return value
