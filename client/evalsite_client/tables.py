"""Whole tables of an experiment, streamed by the site and read as data frames."""

from __future__ import annotations

import importlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalsite_client.connection import Connection

PIECE = 2**20


def import_package(name: str, extra: str) -> Any:
    """Return the module of a package for data frames. Raise ImportError, which says how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise ImportError(f"this needs {error.name}: pip install 'evalsite-client[{extra}]'", name=error.name) from None


class Table:
    """A table with filters, such as the trials of an experiment. It is read when it is converted, each time anew."""

    def __init__(self, connection: Connection, experiment: str, name: str, filters: Mapping[str, Any]) -> None:
        self._connection, self._experiment, self.name, self._filters = connection, experiment, name, dict(filters)

    def __repr__(self) -> str:
        filters = "".join(f", {name}={value!r}" for name, value in self._filters.items())
        return f"<{self.name} of {self._experiment}{filters}: to_pandas(), to_polars(), to_arrow(), save(path)>"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as they arrive, in constant memory."""
        with self._open("jsonl") as answer:
            for line in answer:
                yield json.loads(line)

    def save(self, path: str | Path) -> Path:
        """Write the table to a file: Parquet, JSON lines or CSV, by its suffix."""
        path = Path(path)
        with self._open(path.suffix.removeprefix(".")) as answer, path.open("wb") as file:
            shutil.copyfileobj(answer, file, PIECE)
        return path

    def to_arrow(self) -> Any:
        """Return a pyarrow table. Money is exact."""
        parquet = import_package("pyarrow.parquet", "arrow")
        with tempfile.TemporaryDirectory() as folder:
            return parquet.read_table(self.save(Path(folder) / "table.parquet"))

    def to_pandas(self, *, exact: bool = False) -> Any:
        """Return a pandas frame. Money is a float, or an exact Decimal with `exact`, which takes longer."""
        import_package("pandas", "pandas")
        pyarrow = import_package("pyarrow", "pandas")
        table = self.to_arrow()
        if not exact:
            floats = [
                field.with_type(pyarrow.float64()) if pyarrow.types.is_decimal(field.type) else field
                for field in table.schema
            ]
            table = table.cast(pyarrow.schema(floats))
        return table.to_pandas(split_blocks=True, self_destruct=True)

    def to_polars(self) -> Any:
        """Return a polars frame. Money is exact."""
        polars = import_package("polars", "polars")
        with tempfile.TemporaryDirectory() as folder:
            return polars.read_parquet(self.save(Path(folder) / "table.parquet"))

    def _open(self, file_format: str) -> Any:
        path = f"/experiments/{self._experiment}/export/{self.name}.{file_format}"
        return self._connection.open("GET", path, self._filters)
