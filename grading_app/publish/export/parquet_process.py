"""An export in a separate process: the Parquet library uses more memory than a web process should hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grading_app.publish.export.command_process import stream_command
from grading_app.publish.export.file_formats import Extract
from runs_app.models import Experiment


def parquet_from_process(experiment: Experiment, table: str, filters: Mapping[str, str]) -> Iterator[bytes]:
    """Return the chunks of an export in Parquet, as `export_chunks` does.

    Raise ExportError at once for a table or filter that does not exist. If the reader leaves early, the process ends.
    """
    Extract.of(experiment, table, filters)
    conditions = [f"--filter={name}={value}" for name, value in filters.items()]
    return stream_command(["export", experiment.slug, f"--table={table}", "--format=parquet", "--out=-", *conditions])
