"""Reading of files in a separate process, under limits of memory and time. Every upload and import uses it.

A table can decode to many times its size, and its decoders are native code. The reading process has no API key and no
database connection. If it dies in native code or exceeds a limit, the caller gets `FileError` with the file's name and
the limit. If it ends with an exception, that is a fault of this program, and the caller gets `ReaderFault`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from datasets_app.importing.limits import LIMITS, MIB, Limits
from datasets_app.importing.norm_reader import NormReading
from datasets_app.importing.reader_output import load_readings
from datasets_app.importing.reader_process import COLUMNS, DONE, FAILED, OUT_OF_MEMORY, OUT_OF_SPACE, PROGRESS, REFUSAL
from datasets_app.importing.records import FileError, ItemReading, ReadingReport, ScratchFolder
from evalsite.lib.ops.environment import build_child_environment
from evalsite.lib.ops.installation import ROOT, build_module_command

logger = logging.getLogger(__name__)

LOOK_S = 0.5
STDERR_BYTES = 8000
# Arrow's own allocators reserve address space in advance. The limit on address space would count it.
ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}

Watch = Callable[[int], None]


class ReaderFault(Exception):
    """An exception of the reading program, with its trace. The file is not to blame."""


class FileToRead(NamedTuple):
    """A file, or a folder of images, and the name to show to people."""

    path: Path
    name: str


class TableColumns(NamedTuple):
    """The columns of a table, its first rows as text, and a flag that is set if images came with it.

    sheets: the visible sheets of a spreadsheet. sheet: the sheet that was asked for, or "". by_values: fields whose
    columns are found by their values.
    """

    columns: list[str]
    first_rows: list[list[str]]
    brings_images: bool
    sheets: list[str] = []
    sheet: str = ""
    by_values: Mapping[str, str] = {}


def read_table_columns(
    file: FileToRead,
    limits: Limits = LIMITS,
    watch: Watch | None = None,
    *,
    images: FileToRead | None = None,
    sheet: str = "",
) -> TableColumns:
    """Return the data that the mapping form needs. Raise FileError if a file cannot be read."""
    scratch, files = ScratchFolder(), {"items": file, **({"images": images} if images else {})}
    _run_task(scratch, "columns", files, limits, limits.preview_seconds, watch, sheet=sheet)
    return TableColumns(**json.loads((scratch.path / COLUMNS).read_text(encoding="utf-8")))


def read_upload(
    files: Mapping[str, FileToRead],
    mapping: Mapping[str, str],
    limits: Limits = LIMITS,
    watch: Watch | None = None,
    *,
    leaves_out: bool = False,
) -> tuple[ItemReading, NormReading]:
    """Read the parts "items", "images" and "norms". Errors are in the reports, as with `read_items`."""
    scratch = ScratchFolder()
    try:
        _run_task(
            scratch, "items", files, limits, limits.reader_seconds, watch, mapping=dict(mapping), leaves_out=leaves_out
        )
        return load_readings(scratch)
    except FileError as error:
        report = ReadingReport()
        report.error(None, "file", str(error))
        return ItemReading([], [], dict(mapping), files["items"].name, "", report), NormReading()


def read_norm_table(
    file: FileToRead,
    items: Mapping[str, str],
    mapping: Mapping[str, str] | None = None,
    watch: Watch | None = None,
) -> NormReading:
    """Read norms for `items` (key -> category), as `read_norms` does, in a separate process."""
    scratch = ScratchFolder()
    request = {"items": dict(items), "mapping": dict(mapping or {})}
    try:
        _run_task(scratch, "norms", {"norms": file}, LIMITS, LIMITS.preview_seconds, watch, **request)
        return load_readings(scratch)[1]
    except FileError as error:
        reading = NormReading()
        reading.report.error(None, "norms", str(error))
        return reading


def run_reader(
    scratch: ScratchFolder,
    function: str,
    files: Mapping[str, FileToRead],
    limits: Limits = LIMITS,
    watch: Watch | None = None,
    **more: Any,
) -> None:
    """Run `function`, "module:name", in a separate process with (request, folder of results, limits).

    It reads the files that the request names, and writes its results into the scratch folder. Raise FileError for files
    that cannot be read, and ReaderFault for an exception in the function.
    """
    _run_task(scratch, function, files, limits, limits.reader_seconds, watch, **more)


def _run_task(
    scratch: ScratchFolder,
    task: str,
    files: Mapping[str, FileToRead],
    limits: Limits,
    seconds: int,
    watch: Watch | None,
    **more: Any,
) -> None:
    """Run the task in a separate process. Raise FileError or ReaderFault as `run_reader` does.

    `watch` is called with the number of rows read so far. An exception that it raises ends the process.
    """
    for part, file in files.items():
        if not (file.path.is_file() or (part == "images" and file.path.is_dir())) or not os.access(file.path, os.R_OK):
            raise FileError(f"{file.path}: is not a readable file")
    request = {
        "task": task,
        "files": {part: [str(file.path.resolve()), file.name] for part, file in files.items()},
        "limits": asdict(limits),
        "seconds": seconds,
        "out": str(scratch.path),
        **more,
    }
    with (scratch.path / "stderr").open("w+b") as stderr:
        code = _run_process(request, stderr, seconds, watch or (lambda rows: None), scratch.path)
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - STDERR_BYTES))
        stderr_text = stderr.read().decode(errors="replace")
    if code == FAILED:
        raise ReaderFault(f"the reader process of {task} failed:\n{stderr_text}")
    if code != DONE:
        logger.warning("the reader process of %s ended with exit code %s: %s", task, code, stderr_text)
        raise FileError(_explain_exit(code, files, limits, seconds))
    if (scratch.path / REFUSAL).exists():
        raise FileError(json.loads((scratch.path / REFUSAL).read_text()))


def _run_process(request: dict[str, Any], stderr: Any, seconds: int, watch: Watch, folder: Path) -> int:
    """Run the process and return its exit code. Kill it if it exceeds `seconds` or the caller raises."""
    process = _start_process(stderr)
    try:
        deadline = time.monotonic() + seconds
        assert process.stdin is not None  # noqa: S101 - Popen opened it
        try:
            with process.stdin:
                process.stdin.write(json.dumps(request).encode())
        except BrokenPipeError:
            pass  # The process has already ended. Its exit code gives the reason.
        while True:
            try:
                return process.wait(min(LOOK_S, max(0, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                try:
                    rows_read = int((folder / PROGRESS).read_text())
                except (FileNotFoundError, ValueError):
                    rows_read = 0
                watch(rows_read)
            if time.monotonic() > deadline:
                return -signal.SIGXCPU
    finally:
        process.kill()
        process.wait()


def _start_process(stderr: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        build_module_command("datasets_app.importing.reader_process"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        cwd=ROOT,
        env=build_child_environment(**ENVIRONMENT),
    )


def _explain_exit(code: int, files: Mapping[str, FileToRead], limits: Limits, seconds: int) -> str:
    names = " with ".join(file.name for file in files.values())
    if code == OUT_OF_MEMORY:
        return f"reading {names} takes more than {limits.reader_memory_bytes // MIB} MiB of memory; split it"
    if code == -signal.SIGXCPU:
        return f"reading {names} takes longer than {seconds} s; split it"
    if code == OUT_OF_SPACE:
        return f"{names} decodes to more than {limits.unpacked_bytes // MIB} MiB, or the disk is full; split it"
    if code == -signal.SIGABRT:  # Native code ends so if it gets no memory, such as calamine for a sheet's area.
        return (
            f"reading {names} took more than {limits.reader_memory_bytes // MIB} MiB of memory, or the file is damaged;"
            " if a sheet has a value far below or beside its table, delete it"
        )
    reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the process that read {names} has died ({reason}); the file may be damaged"
