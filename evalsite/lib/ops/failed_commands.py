"""Sentences in place of tracebacks, for failures of a command that its user can remedy."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.core.management.base import CommandError

from evalsite.lib.ops.environment import SettingError
from evalsite.lib.ops.postgres_programs import PostgresError

WORK_FAILED, BAD_INPUT = 1, 2  # As in `evalsite.lib.ops.commands`, which needs Django to be set up.
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
DISK_FULL = "53100"
MISSING_TABLE_OR_COLUMN = frozenset({"42P01", "42703"})
# Classes of SQLSTATE: lost connections; exhausted resources; a server that stops or starts.
CONNECTION_LOST, OUT_OF_RESOURCES, SHUTDOWN = "08", "53", "57P"


@contextmanager
def explain_failures() -> Iterator[None]:
    """Print a sentence and exit if the block fails for a reason that its user can remedy.

    Other errors pass. With the option --traceback, all do.
    """
    try:
        yield
    except Exception as error:
        failure = None if "--traceback" in sys.argv else explain_failure(error)
        if failure is None:
            raise
        print(failure, file=sys.stderr)
        sys.exit(failure.returncode)


def explain_failure(error: BaseException) -> CommandError | None:
    """Return what went wrong and what to do, with an exit code, or None if the error needs a traceback.

    The cause may be hidden: code that cleans up after it fails too, and then raises an error of its own.
    """
    if isinstance(error, PostgresError | SettingError):
        return None  # Their messages are such sentences already.
    for cause in _iterate_causes(error):
        sentence = explain_disk_error(cause) if isinstance(cause, OSError) else None
        if sentence := sentence or _explain_database_error(cause):
            return CommandError(sentence, returncode=WORK_FAILED)
        if getattr(cause, "sqlstate", None) in MISSING_TABLE_OR_COLUMN:
            # How the database's tables differ from those of this code, or None if they do not differ.
            from django.db import connection  # Import late: a command may fail before Django is set up.

            from evalsite.lib.ops.versions import SchemaMismatch, check_columns, check_schema

            connection.close()  # The failed command may have left a transaction open.
            try:
                check_schema()
                check_columns(connection)
            except SchemaMismatch as mismatch:
                return CommandError(str(mismatch), returncode=BAD_INPUT)
            return None
    return None


def explain_disk_error(error: OSError) -> str | None:
    """Return a sentence with the remedy if the disk is full or read-only."""
    of = f" of {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
    if error.errno in NO_SPACE:
        # The free space of the disks that a command writes to.
        folders = {"The current folder": Path.cwd(), "the folder for temporary files": Path(tempfile.gettempdir())}
        if data_dir := os.environ.get("EVALSITE_DATA_DIR"):
            folders["the data folder"] = Path(data_dir)
        parts = []
        for name, folder in folders.items():
            with suppress(OSError):
                parts.append(f"{name} ({folder}) has {shutil.disk_usage(folder).free // 10**6} MB free")
        free_space = f"{', '.join(parts)}."
        return f"The disk{of} is full. Free space, then run the command again. {free_space}"
    if error.errno == errno.EROFS:
        return (
            f"The disk{of} is read-only. Mount it writable, or set EVALSITE_DATA_DIR and the paths of this command to"
            " another disk."
        )
    return None


def _explain_database_error(error: BaseException) -> str | None:
    """Return a sentence with the remedy if the database is full or away."""
    import psycopg  # Import late: the lists of commands and options do without the database's library.

    if not isinstance(error, psycopg.Error):
        return None
    state, reason = error.sqlstate or "", (str(error).splitlines() or ["no reason given"])[0]
    if state == DISK_FULL or "No space left on device" in str(error):
        return f"The disk of the database is full ({reason}). Free space on it, then run the command again."
    if state.startswith(OUT_OF_RESOURCES):
        return f"The database is out of resources: {reason}. Try again when it has less to do."
    if "unsupported startup parameter" in str(error):
        return (
            "DATABASE_URL leads to PgBouncer, which refuses the time-outs of the site's sessions. Use the address of"
            " PostgreSQL itself, or set pool_mode = session and ignore_startup_parameters = options in pgbouncer.ini."
        )
    if state.startswith((CONNECTION_LOST, SHUTDOWN)) or (isinstance(error, psycopg.OperationalError) and not state):
        return f"The database cannot be reached: {reason}. Try again when it answers."
    return None


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__
