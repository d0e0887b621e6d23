"""A backup of the whole site: a dump of the database, and the images that its rows name.

No other account can read a backup: it holds hashes of passwords. Sessions are left out: a copy signs nobody in.

Images are addressed by content and never change, so every backup of one folder shares one copy of them. They are
written before the rows that name them: so the database is dumped first and the images are copied after.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection

from evalsite.lib.ops.postgres import find_programs
from evalsite.lib.ops.private_files import close_folder

DUMPS = "evalsite-*.dump"
WITHOUT_SESSIONS = ("--exclude-table-data=*.django_session",)
UPLOADS = "uploads"  # Files that wait for their mapping: nothing names them for long.


class BackupError(Exception):
    """A backup cannot be made or restored. The message says why and what to do."""


def back_up(folder: Path, keep: int | None = None) -> tuple[Path, int]:
    """Make one, and keep the newest `keep` dumps. Returns the dump and how many images were new. BackupError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"evalsite-{datetime.now(UTC):%Y%m%dT%H%M%S}.dump"
    draft = path.with_suffix(".part")
    try:
        draft.touch(mode=0o600)
        _run("pg_dump", "--format=custom", "--no-owner", "--no-privileges", *WITHOUT_SESSIONS, f"--file={draft}")
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    copied = _copy_missing(Path(settings.MEDIA_ROOT), folder / "media")
    close_folder(folder / "media")
    for made in folder.glob(DUMPS):
        with suppress(PermissionError):  # One of another account.
            made.chmod(0o600)  # Earlier versions left them open.
    for old in sorted(folder.glob(DUMPS))[: -keep if keep else 0]:
        old.unlink()
    return path, copied


def restore(dump: Path) -> int:
    """Fill an empty database from a dump, all or nothing, and put back the images. How many. BackupError."""
    if not dump.is_file():
        raise BackupError(f"There is no file {dump}.")
    if connection.introspection.table_names():
        raise BackupError("The database is not empty. Restore into a new one: nothing here is ever overwritten.")
    connection.close()
    _run("pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", str(dump))
    return _copy_missing(dump.parent / "media", Path(settings.MEDIA_ROOT))


def _run(program: str, *arguments: str) -> None:
    """A program of PostgreSQL on this site's database. The password goes by the environment: `ps` lists arguments."""
    known = connection.get_connection_params()
    target = " ".join(
        f"{name}={_quoted(known[name])}" for name in ("host", "port", "user", "dbname") if known.get(name)
    )
    password = {"PGPASSWORD": str(known["password"])} if known.get("password") else {}
    ended = subprocess.run(
        [find_programs() / program, f"--dbname={target}", *arguments],
        env={**os.environ, **password},
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        raise BackupError(f"{program} failed: {ended.stderr.strip() or ended.returncode}")


def _quoted(value: object) -> str:
    """As libpq reads a value of a connection string."""
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


def _copy_missing(source: Path, target: Path) -> int:
    """A file is there whole or not at all, whenever this is interrupted."""
    copied = 0
    for path in _files(source):
        there = target / path.relative_to(source)
        if there.exists():
            continue
        there.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = there.with_name(f"{there.name}.part")
        shutil.copy2(path, draft)
        draft.chmod(0o600)
        draft.rename(there)
        copied += 1
    return copied


def _files(folder: Path) -> Iterator[Path]:
    """Not the uploads, nor what an interrupted copy left."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".part" and path.relative_to(folder).parts[0] != UPLOADS:
            yield path
