"""The process that reads one upload, without API keys or database, under limits of memory and time.

`datasets_app.importing.limited_reader` starts it as `python -m datasets_app.importing.reader_process` and sends a JSON
request to its standard input. The process ends with an exit code of this module. Its results are in the folder that the
request names.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import io
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DONE, FAILED, OUT_OF_MEMORY, OUT_OF_SPACE = 0, 1, 3, 4  # FAILED is how Python ends after an exception.
COLUMNS, PROGRESS, REFUSAL = "columns.json", "progress", "refusal.json"
PR_SET_PDEATHSIG = 1
EVERY_S = 0.5


def restrict(memory_bytes: int, file_bytes: int, seconds: int) -> None:
    """Limit this process permanently. Let it end with its parent and write no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def perform(request: dict[str, Any]) -> None:
    """Read the files of the request. If they cannot be read at all, write the reason to `refusal.json`.

    A task is one of this module, or "module:function".
    """
    from datasets_app.importing.limits import Limits
    from datasets_app.importing.records import FileError

    limits = Limits(**request["limits"])
    out = Path(request["out"])
    module, _, function = request["task"].partition(":")
    perform_task: Callable[[dict[str, Any], Path, Any], None]
    try:
        if function:
            perform_task = getattr(importlib.import_module(module), function)
        else:
            perform_task = {"columns": _read_columns, "items": _read_items, "norms": _read_norms}[module]
        perform_task(request, out, limits)
    except FileError as error:
        (out / REFUSAL).write_text(json.dumps(str(error)))


def _read_columns(request: dict[str, Any], out: Path, limits: Any) -> None:
    from datasets_app.importing.item_reader import read_columns
    from datasets_app.importing.spreadsheet_reader import list_sheets
    from datasets_app.importing.table_readers import detect_kind

    files, sheet = request["files"], request.get("sheet", "")
    path, name = files["items"]
    with _open_file(path, name) as file:
        images = _open_file(*files["images"]) if "images" in files else None
        columns, rows, by_values = read_columns(file, images=images, limits=limits, sheet=sheet)
        file.seek(0)
        kind = detect_kind(file, name)
        sheets = list_sheets(file, limits) if kind == "spreadsheet" else []
    content = {
        "columns": columns,
        "first_rows": rows,
        "brings_images": kind in ("zip", "parquet"),
        "sheets": sheets,
        "sheet": sheet,
        "by_values": by_values,
    }
    (out / COLUMNS).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _read_items(request: dict[str, Any], out: Path, limits: Any) -> None:
    from datasets_app.importing.item_reader import read_items
    from datasets_app.importing.norm_reader import NormReading, read_norms
    from datasets_app.importing.reader_output import write_readings
    from datasets_app.importing.records import ScratchFolder

    files = request["files"]
    images = files.get("images")
    with _open_file(*files["items"]) as file:
        reading = read_items(
            file,
            mapping=request["mapping"],
            images=images and (Path(images[0]) if Path(images[0]).is_dir() else _open_file(*images)),
            limits=limits,
            scratch=ScratchFolder.at(out),
            watch=report_progress(out),
            leaves_out=request.get("leaves_out", False),
        )
    norms = NormReading()
    if reading.ok and "norms" in files:
        with _open_file(*files["norms"]) as file:
            norms = read_norms(file, {item.key: item.category for item in reading.items}, limits=limits)
    write_readings(out, reading, norms)


def _read_norms(request: dict[str, Any], out: Path, limits: Any) -> None:
    from datasets_app.importing.norm_reader import read_norms
    from datasets_app.importing.reader_output import write_readings
    from datasets_app.importing.records import ItemReading, ReadingReport

    with _open_file(*request["files"]["norms"]) as file:
        norms = read_norms(file, request["items"], request["mapping"], limits)
    write_readings(out, ItemReading([], [], {}, "", "", ReadingReport()), norms)


def _open_file(path: str, name: str) -> Any:
    """Return the file under the name that it was uploaded with."""
    raw = io.FileIO(path)
    raw.name = name
    return io.BufferedReader(raw)


def report_progress(out: Path) -> Callable[[int], None]:
    """Return a function that writes the number of rows read, at most twice a second."""
    due = time.monotonic() + EVERY_S

    def watch(rows: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + EVERY_S
            draft = out / f"{PROGRESS}.new"
            draft.write_text(str(rows))
            draft.replace(out / PROGRESS)

    return watch


def main() -> None:
    """Perform the request, and end this process without the interpreter's own shutdown.

    All results are closed files by then. A thread of Arrow that still holds one of its files can abort the process
    while the interpreter shuts down (https://github.com/apache/arrow/issues/34314).
    """
    request = json.load(sys.stdin)
    restrict(request["limits"]["reader_memory_bytes"], request["limits"]["unpacked_bytes"], request["seconds"])
    try:
        perform(request)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)  # Exit immediately, because unwinding and reporting need memory.
    except OSError as error:
        if error.errno in (errno.EFBIG, errno.ENOSPC):
            os._exit(OUT_OF_SPACE)
        raise
    os._exit(DONE)


if __name__ == "__main__":
    main()
