"""Parquet to rows, in small batches. pyarrow is loaded only when a Parquet file is read."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

from datasets_app.importing.limits import MIB, Limits
from datasets_app.importing.records import Refused, Report, Row

BATCH_ROWS = 256
BROKEN = (OSError, ValueError, OverflowError, MemoryError)  # pyarrow's own errors derive from these, but for a few.


def parquet_rows(file: BinaryIO, report: Report, limits: Limits) -> tuple[list[str], Iterator[Row]]:
    """Columns and rows. Times become ISO text, decimals text, and numbers that are not finite become None."""
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(file)
    except (pyarrow.ArrowException, *BROKEN) as error:
        raise Refused(f"the file is not Parquet: {error}") from None
    _check_size(table.metadata, limits)
    columns = list(table.schema_arrow.names)
    if len(set(columns)) < len(columns):
        raise Refused("the table names a column twice")
    return columns, _rows(table, limits)


def _check_size(metadata: Any, limits: Limits) -> None:
    """Before a page is unpacked: a few kilobytes of Parquet can stand for gigabytes."""
    if metadata.num_rows > limits.rows:
        raise Refused(f"the table has {metadata.num_rows:,} rows; at most {limits.rows:,} are read")
    unpacked = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    if unpacked > limits.unpacked_bytes:
        raise Refused(f"the table unpacks to more than {limits.unpacked_bytes // MIB} MiB")


def _rows(table: Any, limits: Limits) -> Iterator[Row]:
    import pyarrow

    number = 0
    try:
        for batch in table.iter_batches(batch_size=BATCH_ROWS):
            if batch.nbytes > limits.table_bytes:
                raise Refused(f"{BATCH_ROWS} rows hold more than {limits.table_bytes // MIB} MiB")
            for values in batch.to_pylist():
                number += 1
                yield Row(number, None, {name: plain(value) for name, value in values.items()})
    except (pyarrow.ArrowException, *BROKEN) as error:
        raise Refused(f"after row {number}: {error}") from None


def plain(value: Any) -> Any:
    """A value of Arrow as JSON has it; bytes stay bytes, since a column may hold images."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    return value
