"""The result spool: received answers that the database does not have yet, in a file that outlives the process.

A cycle writes answers tens of milliseconds after they arrive, or much later during an outage of the database. Until
then, each answer is a line of a file that the process holds locked. The lock ends with the process. Then the next
worker on this machine, or on any that shares the folder, records the lines. So only calls in flight are paid again,
even though an answer frees its slot before it is written.

The token and the unique row per call make recording idempotent. So a recorded line may stay in the file. The file is
not flushed to the disk: it survives the end of a process, but not a power cut.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from django.db import DatabaseError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from evalsite.lib.ops.file_lock import lock_file
from runs_app.engine.prepared_calls import StartedCall, recover_prepared, store_starts
from runs_app.engine.recorder import Result
from runs_app.engine.recovery import OUTAGES, record_each
from runs_app.models import Worker

logger = logging.getLogger("evalsite.drain")

LINE_ADAPTER: TypeAdapter[Result | StartedCall] = TypeAdapter(Result | StartedCall)
MAX_RECORDED_BYTES = 2**20  # Recorded lines stay until the file is this long, or until all lines are recorded.


class ResultSpool:
    """One worker's spool. If the file cannot be written (disk full, no permission), the worker continues without it."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.path = folder / f"{worker}.jsonl"
        self._size = 0
        self._file: int | None = None
        try:
            self._file = _create_locked_file(self.path)
        except OSError as error:
            self._disable(error)

    def add(self, entry: Result | StartedCall) -> bool:
        """Add a result or a start, which stays until `keep_only` drops it. Return whether it is in the file."""
        if self._file is None:
            return False
        try:
            line = LINE_ADAPTER.dump_json(entry) + b"\n"
            written = os.write(self._file, line)
        except PydanticSerializationError:  # A lone surrogate, which only the recorder replaces.
            logger.warning("the answer of trial %s is not in the result spool", entry.claim.trial_id)
        except OSError as error:
            self._disable(error)
        else:
            self._size += written
            if written < len(line):  # The next line would be appended to this incomplete one, and lost with it.
                self._disable(OSError("no space for a whole line"))
            else:
                return True
        return False

    def keep_only(self, entries: Iterable[Result | StartedCall]) -> None:
        """Drop all lines but those of these results and starts. All others are recorded."""
        entries = list(entries)
        if self._file is None or self._size == 0 or (entries and self._size < MAX_RECORDED_BYTES):
            return
        os.ftruncate(self._file, 0)
        self._size = 0
        for entry in entries:
            self.add(entry)

    def close(self) -> None:
        """Close the file. It stays if it has unrecorded results, for another worker."""
        if self._file is not None:
            if self._size == 0:
                self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def _disable(self, error: OSError) -> None:
        logger.warning("no result spool: if this process is killed, unrecorded answers are paid for again (%s)", error)
        self.close()


def _create_locked_file(path: Path) -> int:
    """Create and lock a file to append to. It gets its final name when it is locked, so no worker finds it unlocked."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        lock_file(file, waits=False)
        temporary.rename(path)
    except OSError:
        os.close(file)
        raise
    return file


def record_orphaned_results(folder: Path) -> int:
    """Record the results that dead workers of this database left in the folder.

    Return how many still held their trial.
    """
    return sum(_record_orphaned_file(path) for path in folder.glob("*.jsonl"))


def _record_orphaned_file(path: Path) -> int:
    try:
        file = path.open("rb")
    except OSError:  # Another worker was quicker, or this process may not read the file.
        return 0
    with file:
        try:
            lock_file(file, waits=False)
        except OSError:
            return 0
        worker = Worker.objects.filter(name=path.stem).first()
        if worker is None:  # The file belongs to another database, and its workers will find it.
            return 0
        try:
            entries = list(_read_entries(file, path.name))
            starts = [entry for entry in entries if isinstance(entry, StartedCall)]
            store_starts(starts)
            results = (entry for entry in entries if isinstance(entry, Result))
            recorded = record_each(_drop_feedback(results), worker.pk)
            if worker.is_gateway:
                recover_prepared(worker.pk, {start.claim.trial_id for start in starts})
        except OUTAGES:
            raise
        except DatabaseError:  # Rename the file, or every worker would repeat the error at every heartbeat.
            logger.exception("results of %s cannot be recorded; they stay in %s.refused", worker.name, path.name)
            path.rename(f"{path}.refused")
            return 0
        path.unlink(missing_ok=True)
    logger.warning("recorded %s answers of worker %s, which died", recorded, worker.name)
    return recorded


def _read_entries(file: Iterable[bytes], name: str) -> Iterator[Result | StartedCall]:
    """Yield the results and starts in a file. The last line may be incomplete if the process died while it wrote."""
    for line in file:
        try:
            yield LINE_ADAPTER.validate_json(line)
        except ValidationError:
            logger.warning("a line of %s bytes in %s is incomplete", len(line), name)


def _drop_feedback(results: Iterable[Result]) -> list[Result]:
    """Return the results without their feedback on the endpoint, which is out of date."""
    outdated = list(results)
    for result in outdated:
        result.pause_s = result.allowance = None
    return outdated
