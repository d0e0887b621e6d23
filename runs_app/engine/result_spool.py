"""The result spool: received answers that the database does not have yet, in a file that outlives the process.

A cycle writes answers tens of milliseconds after they arrive, or much later if the database is away. Until then each is
a line of a file that the process holds locked. The lock ends with the process. The next worker that looks, on this
machine or on any that shares the folder, then records the lines. So only calls in flight are paid again, even though an
answer frees its slot before it is written.

Recording twice changes nothing, because of the token and the one row per call. So a line may stay here after it was
recorded. The file is not flushed to the disk: it survives the end of a process, but not a power cut.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from django.db import DatabaseError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from runs_app.engine.database_recovery import OUTAGES, record_each
from runs_app.engine.recorder import Result
from runs_app.models import Worker

logger = logging.getLogger("evalsite.drain")

LINES: TypeAdapter[Result] = TypeAdapter(Result)
ROOM = 2**20  # Bytes. Recorded lines stay until the file is this long, or until no unrecorded line is left.


class ResultSpool:
    """The spool of one worker. If it cannot be written (disk full, no permission) the worker goes on without it."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.path = folder / f"{worker}.jsonl"
        self._size = 0
        self._file: int | None = None
        try:
            self._file = _published(self.path)
        except OSError as error:
            self._do_without(error)

    def add(self, result: Result) -> None:
        """Add a result, which stays until `keep_only` drops it."""
        if self._file is None:
            return
        try:
            line = LINES.dump_json(result) + b"\n"
            written = os.write(self._file, line)
        except PydanticSerializationError:  # A lone surrogate, which only the recorder replaces.
            logger.warning("the answer of trial %s is not in the result spool", result.claim.trial_id)
        except OSError as error:
            self._do_without(error)
        else:
            self._size += written
            if written < len(line):  # The next line would continue this cut one, and be lost with it.
                self._do_without(OSError("no room for a whole line"))

    def keep_only(self, results: Iterable[Result]) -> None:
        """Drop all lines but those of these results: everything else is recorded."""
        results = list(results)
        if self._file is None or self._size == 0 or (results and self._size < ROOM):
            return
        os.ftruncate(self._file, 0)
        self._size = 0
        for result in results:
            self.add(result)

    def close(self) -> None:
        """Close the file. Results that were never recorded stay, for another worker."""
        if self._file is not None:
            if self._size == 0:
                self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def _do_without(self, error: OSError) -> None:
        logger.warning("no result spool: if this process is killed, unrecorded answers are paid for again (%s)", error)
        self.close()


def _published(path: Path) -> int:
    """Create a file to append to, and lock it before it gets its name: nobody can find it unlocked."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unnamed = path.with_suffix(".new")
    file = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(path)
    except OSError:
        os.close(file)
        raise
    return file


def record_orphaned_results(folder: Path) -> int:
    """Record the results that dead workers of this database left here. Return how many still held their trial."""
    return sum(_record_of_dead(path) for path in folder.glob("*.jsonl"))


def _record_of_dead(path: Path) -> int:
    try:
        file = path.open("rb")
    except OSError:  # Another worker was quicker, or the file is not readable for us.
        return 0
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        worker = Worker.objects.filter(name=path.stem).first()
        if worker is None:  # The file belongs to another database, whose workers will look for it.
            return 0
        try:
            recorded = record_each(_past(_lines(file, path.name)), worker.pk)
        except OUTAGES:
            raise
        except DatabaseError:  # Rename the file: a refusal now would be repeated at every heartbeat of every worker.
            logger.exception("results of %s cannot be recorded; they stay in %s.refused", worker.name, path.name)
            path.rename(f"{path}.refused")
            return 0
        path.unlink(missing_ok=True)
    logger.warning("recorded %s answers of worker %s, which died", recorded, worker.name)
    return recorded


def _lines(file: Iterable[bytes], name: str) -> Iterator[Result]:
    """Yield the results of a file. The end of the process may have cut the last line short."""
    for line in file:
        try:
            yield LINES.validate_json(line)
        except ValidationError:
            logger.warning("a line of %s bytes in %s is incomplete", len(line), name)


def _past(results: Iterable[Result]) -> list[Result]:
    """Return the results without their feedback on the endpoint, which is out of date."""
    past = list(results)
    for result in past:
        result.pause_s = result.allowance = None
    return past
