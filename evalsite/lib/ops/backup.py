"""Backups of the whole site: a dump of the database, and the images that its rows reference.

A backup contains password hashes, so other accounts cannot read its files. Sessions are excluded: a stolen
backup signs nobody in.

Images have content addresses and never change, so all backups in one folder share one copy of them. The site writes an
image before the rows that name it. For that reason a backup first dumps the database and then copies the images.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection

from evalsite.lib.ops.data_folder import restrict_folder
from evalsite.lib.ops.environment import build_child_environment
from evalsite.lib.ops.postgres_programs import find_programs

DUMP_PATTERN = "evalsite-*.dump"
EXCLUDE_SESSIONS = ("--exclude-table-data=*.django_session",)
UPLOADS_FOLDER = "uploads"  # Short-lived files of unfinished uploads, which a backup omits.


class BackupError(Exception):
    """An error while making or restoring a backup. The message gives the reason and the remedy."""


def back_up(folder: Path, keep: int | None = None) -> tuple[Path, int]:
    """Write a backup into the folder. Return the path of the dump and the number of newly copied images.

    `keep` deletes all but the newest `keep` dumps; None deletes nothing. Raise BackupError if pg_dump fails.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"evalsite-{datetime.now(UTC):%Y%m%dT%H%M%S}.dump"
    draft = path.with_suffix(".part")
    try:
        draft.touch(mode=0o600)
        _run("pg_dump", "--format=custom", "--no-owner", "--no-privileges", *EXCLUDE_SESSIONS, f"--file={draft}")
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    copied = _copy_missing(Path(settings.MEDIA_ROOT), folder / "media")
    restrict_folder(folder / "media")
    for dump in folder.glob(DUMP_PATTERN):
        with suppress(PermissionError):  # The dump belongs to another account.
            dump.chmod(0o600)  # Earlier versions made dumps that everybody could read.
    for old in sorted(folder.glob(DUMP_PATTERN))[: -keep if keep else 0]:
        old.unlink()
    return path, copied


def restore(dump: Path) -> int:
    """Load a dump into an empty database and copy back the images. Return the number of copied images.

    The dump is loaded in one transaction. Raise BackupError if the file is missing, the database is not empty, or a
    program fails.
    """
    if not dump.is_file():
        raise BackupError(f"There is no file {dump}.")
    if connection.introspection.table_names():
        raise BackupError("The database is not empty. Restore into a new one: nothing here is ever overwritten.")
    connection.close()
    _run("pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", str(dump))
    return _copy_missing(dump.parent / "media", Path(settings.MEDIA_ROOT))


def _run(program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL on this site's database. Raise BackupError if it fails.

    The environment passes the password, because `ps` shows command-line arguments to everybody.
    """
    parameters = connection.get_connection_params()
    target = " ".join(
        f"{name}={_quote(parameters[name])}" for name in ("host", "port", "user", "dbname") if parameters.get(name)
    )
    password = {"PGPASSWORD": str(parameters["password"])} if parameters.get("password") else {}
    result = subprocess.run(
        [find_programs() / program, f"--dbname={target}", *arguments],
        env=build_child_environment("HOME", "PG*", **password),
        capture_output=True,
        text=True,
    )
    if result.returncode:
        raise BackupError(f"{program} failed: {result.stderr.strip() or result.returncode}")


def _quote(value: object) -> str:
    """Quote a value for a connection string of libpq."""
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


def _copy_missing(source: Path, target: Path) -> int:
    """Copy the files that the target lacks and return their number.

    Each file is written under a draft name and then renamed. An interrupted copy therefore leaves no partial file under
    a final name.
    """
    copied = 0
    for path in _iterate_files(source):
        destination = target / path.relative_to(source)
        if destination.exists():
            continue
        destination.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = destination.with_name(f"{destination.name}.part")
        shutil.copy2(path, draft)
        draft.chmod(0o600)
        draft.rename(destination)
        copied += 1
    return copied


def _iterate_files(folder: Path) -> Iterator[Path]:
    """Yield the files to copy. Skip uploads and the leftovers of an interrupted copy."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".part" and path.relative_to(folder).parts[0] != UPLOADS_FOLDER:
            yield path
