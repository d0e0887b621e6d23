"""A common way to open a path or an already open binary file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from datasets_app.importing.records import FileError

Openable = Path | str | BinaryIO


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
