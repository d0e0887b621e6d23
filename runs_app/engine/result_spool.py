"""Answers that came in and are not yet in the database, in a file that outlives the process.

A turn writes answers tens of milliseconds after they came, and much later where the database is away. Until then each
is a line of a file, which the process holds locked. When it dies, for whatever reason, the lock is gone: the next drain
to look, on this machine or on any that shares the folder, records the lines in its place. So only calls in flight are
paid again, though an answer's slot was handed on before the answer was written.

Recording twice changes nothing (token, and one row a call), so a line may stay here after it was recorded. The file is
written, not flushed to the disk: it outlives a process, not a power cut.
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
ROOM = 2**20  # Bytes. Lines that were recorded stay until there are so many, or none that was not.


class ResultSpool:
    """One worker's. Where it cannot be written (no room, a folder of others) the drain goes on without."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.path = folder / f"{worker}.jsonl"
        self._size = 0
        self._file: int | None = None
        try:
            self._file = _published(self.path)
        except OSError as error:
            self._do_without(error)

    def add(self, result: Result) -> None:
        """Keep this until `keep_only` says that it is recorded."""
        if self._file is None:
            return
        try:
            line = LINES.dump_json(result) + b"\n"
            written = os.write(self._file, line)
        except PydanticSerializationError:  # Half a surrogate pair, which only recording replaces.
            logger.warning("the answer of trial %s is not kept in the journal", result.claim.trial_id)
        except OSError as error:
            self._do_without(error)
        else:
            self._size += written
            if written < len(line):  # The next line would go on where this one was cut, and be lost with it.
                self._do_without(OSError("no room for a whole line"))

    def keep_only(self, results: Iterable[Result]) -> None:
        """All but these are recorded."""
        results = list(results)
        if self._file is None or self._size == 0 or (results and self._size < ROOM):
            return
        os.ftruncate(self._file, 0)
        self._size = 0
        for result in results:
            self.add(result)

    def close(self) -> None:
        """What was never recorded stays, for another to record."""
        if self._file is not None:
            if self._size == 0:
                self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def _do_without(self, error: OSError) -> None:
        logger.warning("no journal: if this process is killed, answers not yet recorded are paid again (%s)", error)
        self.close()


def _published(path: Path) -> int:
    """A new file to append to, locked before it has its name: nobody finds it without its lock."""
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
    """Record what dead workers of this database left here. Returns how many results still held their trial."""
    return sum(_record_of_dead(path) for path in folder.glob("*.jsonl"))


def _record_of_dead(path: Path) -> int:
    try:
        file = path.open("rb")
    except OSError:  # Another was quicker, or it is not ours to read.
        return 0
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        worker = Worker.objects.filter(name=path.stem).first()
        if worker is None:  # Of another database, which a drain of that will look for.
            return 0
        try:
            recorded = record_each(_past(_lines(file, path.name)), worker.pk)
        except OUTAGES:
            raise
        except DatabaseError:  # Once: what is refused now would be refused at every beat of every drain.
            logger.exception("what %s left cannot be recorded; it stays in %s.refused", worker.name, path.name)
            path.rename(f"{path}.refused")
            return 0
        path.unlink(missing_ok=True)
    logger.warning("%s answers recorded that %s left when it died", recorded, worker.name)
    return recorded


def _lines(file: Iterable[bytes], name: str) -> Iterator[Result]:
    """The last may have been cut short by the death."""
    for line in file:
        try:
            yield LINES.validate_json(line)
        except ValidationError:
            logger.warning("a line of %s bytes in %s is no whole answer", len(line), name)


def _past(results: Iterable[Result]) -> list[Result]:
    """What they said of their endpoint's state was of then."""
    past = list(results)
    for result in past:
        result.pause_s = result.allowance = None
    return past
