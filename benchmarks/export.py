"""The speed of exports of answers and gradings: `python benchmarks/export.py [TRIALS] [TABLE ...]`.

Each format runs in a separate process, so that its memory is measured alone.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from itertools import product
from pathlib import Path


def measure(rows: int, table: str, file_format: str, name: str) -> None:
    from django.db import connection

    from benchmarks import stored  # noqa: F401 - sets Django up

    connection.settings_dict["NAME"] = name
    from grading_app.publish.export.file_formats import export_chunks, write_export
    from runs_app.models import Experiment

    experiment = Experiment.objects.get(slug="stored")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / f"{table}.{file_format}"
        start = time.perf_counter()
        write_export(export_chunks(experiment, table, file_format), str(out))
        seconds = time.perf_counter() - start
        size = out.stat().st_size / 2**20
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    pace = f"{rows / seconds:,.0f}/s"
    print(
        f"{table}, {file_format}: {rows:,} rows in {seconds:.1f} s, {pace}, {size:,.0f} MB; memory {memory} MB",
        flush=True,
    )


def main(rows: int, tables: list[str]) -> None:
    from django.db import connection

    from benchmarks.stored import create_answers, create_verdicts, temporary_database  # It sets Django up.

    fresh = multiprocessing.get_context("spawn")
    with temporary_database():
        experiment = create_answers(rows)
        count, name = sum(run.n_done for run in experiment.runs.all()), connection.settings_dict["NAME"]
        if "gradings" in tables:
            create_verdicts(experiment)
        for table, file_format in product(tables, ("csv", "jsonl", "parquet")):
            process = fresh.Process(target=measure, args=(count, table, file_format, name))
            process.start()
            process.join()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, sys.argv[2:] or ["trials"])
