"""A command of the site in a separate process, whose output a response streams.

It is for work that uses more memory or time than a web process should.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence

from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo

from evalsite.lib.ops.environment import build_child_environment
from evalsite.lib.ops.installation import ROOT, build_module_command
from grading_app.publish.export.file_formats import Extract
from runs_app.models import Experiment

PIECE = 256 * 2**10


class CommandProcessError(RuntimeError):
    """A process that ended before its output was complete. Its error output is in the log."""


def stream_command(arguments: Sequence[str]) -> Iterator[bytes]:
    """Yield the standard output of a command. If the reader leaves early, the process ends."""
    process = subprocess.Popen(
        build_module_command("evalsite", *arguments, "--verbosity=0"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=_build_environment(),
    )
    with process:
        try:
            yield from iter(lambda: process.stdout.read(PIECE), b"")  # type: ignore[union-attr]
        except GeneratorExit:
            process.kill()
            raise
    if process.returncode:
        raise CommandProcessError(f"{' '.join(arguments[:2])} ended with {process.returncode}")


def _build_environment() -> dict[str, str]:
    """Return an environment without keys of providers, with the address of the database that this process uses.

    libpq reads certificates and passwords from PG* and the home folder. A command may queue tasks, which the site's own
    key signs. Without EVALSITE_SECRET_KEY, the command reads that key from the data folder.
    """
    database = connection.settings_dict
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    parts = {part: str(database[name]) for part, name in names.items() if database.get(name)}
    return build_child_environment(
        "HOME",
        "PG*",
        "MPLCONFIGDIR",
        "EVALSITE_SECRET_KEY",
        EVALSITE_DATA_DIR=str(settings.DATA_DIR),
        DATABASE_URL=make_conninfo(**{**database["OPTIONS"], **parts}),
    )


def parquet_from_process(experiment: Experiment, table: str, filters: Mapping[str, str]) -> Iterator[bytes]:
    """Return the chunks of an export in Parquet, as `export_chunks` does.

    Raise ExportError at once for a table or filter that does not exist. If the reader leaves early, the process ends.
    """
    Extract.of(experiment, table, filters)
    conditions = [f"--filter={name}={value}" for name, value in filters.items()]
    return stream_command(["export", experiment.slug, f"--table={table}", "--format=parquet", "--out=-", *conditions])
