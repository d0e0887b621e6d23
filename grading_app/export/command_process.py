"""A command of the site in a separate process, whose output a response streams.

It is for work that uses more memory or time than a web process should.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo

PIECE = 256 * 2**10


class CommandProcessError(RuntimeError):
    """A process that ended before its output was complete. Its error output is in the log."""


def stream_command(arguments: Sequence[str]) -> Iterator[bytes]:
    """Yield the standard output of `manage.py ARGUMENTS`. If the reader leaves early, the process ends."""
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=_build_environment())
    with process:
        try:
            yield from iter(lambda: process.stdout.read(PIECE), b"")  # type: ignore[union-attr]
        except GeneratorExit:
            process.kill()
            raise
    if process.returncode:
        raise CommandProcessError(f"{' '.join(arguments[:2])} ended with {process.returncode}")


def _build_environment() -> dict[str, str]:
    """Return this process's environment, with the address of the database that it is connected to."""
    database = connection.settings_dict
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    parts = {part: str(database[name]) for part, name in names.items() if database.get(name)}
    return {**os.environ, "DATABASE_URL": make_conninfo(**{**database["OPTIONS"], **parts})}
