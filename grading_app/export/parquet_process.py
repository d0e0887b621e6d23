"""An export in a separate process: the Parquet library uses more memory than a web process should hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo

from grading_app.export.formats import Extract
from runs_app.models import Experiment

PIECE = 256 * 2**10


class ExportProcessError(RuntimeError):
    """An export process that ended before its file was complete. Its error output is in the log."""


def parquet_from_process(experiment: Experiment, table: str, filters: Mapping[str, str]) -> Iterator[bytes]:
    """Return the chunks of an export in Parquet, as `export_chunks` does.

    Raise ExportError at once for a table or filter that does not exist. If the reader leaves early, the process ends.
    """
    Extract.of(experiment, table, filters)
    chosen = [f"{name}={value}" for name, value in filters.items()]
    return _chunks([experiment.slug, "--table", table, "--format", "parquet", "--out", "-", "--filter", *chosen])


def _chunks(arguments: list[str]) -> Iterator[bytes]:
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "export", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=_environment())
    with process:
        try:
            yield from iter(lambda: process.stdout.read(PIECE), b"")  # type: ignore[union-attr]
        except GeneratorExit:
            process.kill()
            raise
    if process.returncode:
        raise ExportProcessError(f"the export of {arguments[0]} ended with {process.returncode}")


def _environment() -> dict[str, str]:
    """Return this process's environment, with the address of the database that it is connected to."""
    known = connection.settings_dict
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    parts = {part: str(known[name]) for part, name in names.items() if known.get(name)}
    return {**os.environ, "DATABASE_URL": make_conninfo(**{**known["OPTIONS"], **parts})}
