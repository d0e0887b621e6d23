"""Output of commands to a path, or to the standard output."""

from __future__ import annotations

from collections.abc import Iterator

from evalsite.lib.ops.commands import refuse_file
from grading_app.publish.export.file_formats import write_export


def write_output(chunks: Iterator[bytes], out: str) -> int:
    """Write finished chunks as `write_export` does, and return the number of bytes.

    End the command if the file cannot be written.
    """
    try:
        return write_export(chunks, out)
    except OSError as error:
        refuse_file(error)
