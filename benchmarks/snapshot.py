"""Time and memory of snapshots and of records: `python -m benchmarks.snapshot [TRIALS ...] [--steps NAME ...]`.

For each number of trials, each with a call and a grading: make a snapshot, check it, import it into the same database
as a second study, export the answers to a parametric task as records, and import the records as a third study. Each
step runs in a process of its own, so that its peak of memory is measured alone. The peak must not grow with the number
of trials. Without `DATABASE_URL` the script starts the embedded PostgreSQL.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

SIZES = (100_000, 1_000_000)
STEPS = ("snapshot", "verify", "import", "records", "import-records")
INSERT_GRADINGS = """INSERT INTO grading_app_grading
        (condition_id, trial_id, score, score_raw, parse_ok, parse_error, reasoning, detail, created_at)
    SELECT %s, t.id, t.id %% 2, '1', true, '', '', '{"extracted": "1", "normalised": "1", "valid": true}', now()
    FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id WHERE r.experiment_id = %s"""
INSERT_ATTEMPTS = """INSERT INTO runs_app_attempt (trial_id, run_id, token, call, outcome, started_at, finished_at,
        empty, truncated, refused, unparsed, batched, input_tokens, output_tokens, cost_usd, list_usd, error_class,
        error, finish_reason, response_id, served_model, served_provider, trace_id, request_hash)
    SELECT t.id, t.run_id, gen_random_uuid(), 0, 'ok', t.claimed_at, t.completed_at, false, false, false, false, false,
        t.input_tokens, t.output_tokens, t.cost_usd, t.cost_usd, '', '', 'stop', '', 'vendor/model-2026', '', '', ''
    FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id WHERE r.experiment_id = %s"""
SET_PARAMETERS = """UPDATE datasets_app_item SET metadata = jsonb_build_object('task', 'arithmetic', 'number', position,
    'point', 'length ' || position %% 10, 'params', jsonb_build_object('length', position %% 10), 'guess_chance', 0)
    WHERE dataset_id = %s"""


def create_study(trials: int) -> tuple[str, int]:
    """Store a study with a call and a grading of each trial. Return its name and its number of trials."""
    from django.db import connection

    from benchmarks.stored import create_answers  # It sets Django up.
    from datasets_app.models import Dataset
    from grading_app.models import GradeCondition

    experiment = create_answers(trials, f"stored-{trials}")
    rule = GradeCondition.objects.create(
        experiment=experiment, grade_condition_id="final_answer--benchmark", kind="rule", scorer="final_answer"
    )
    with connection.cursor() as cursor:
        cursor.execute(INSERT_ATTEMPTS, [experiment.pk])
        cursor.execute(INSERT_GRADINGS, [rule.pk, experiment.pk])
        cursor.execute("SET session_replication_role = replica")  # The dataset is frozen.
        cursor.execute(SET_PARAMETERS, [experiment.dataset_id])
        dataset = Dataset.objects.filter(pk=experiment.dataset_id)
        dataset.update(content_hash=dataset.get().hash_items(), recipe={"strategy": "parametric"})
        cursor.execute("SET session_replication_role = origin")
        cursor.execute("VACUUM ANALYZE")
    return experiment.slug, sum(run.n_done for run in experiment.runs.all())


def run_step(name: str, slug: str, folder: str, database: str, results: object) -> None:
    """Run one step in this process and print its time and its peak of memory."""
    from django.db import connection

    from benchmarks import stored  # noqa: F401 - sets Django up

    connection.settings_dict["NAME"] = database
    from django.conf import settings

    settings.MEDIA_ROOT = Path(folder) / "media"
    work = prepare_step(name, slug, Path(folder))
    before = read_peak_mb()
    start = time.perf_counter()
    work()
    results.put((time.perf_counter() - start, before, read_peak_mb()))  # type: ignore[attr-defined]


def prepare_step(name: str, slug: str, folder: Path) -> Callable[[], object]:
    """Import what the step needs, and return the step."""
    from django.contrib.auth.models import User

    from evalsite.lib.checksummed_zip import read_file
    from grading_app.publish.export.file_formats import export_chunks, write_export
    from grading_app.publish.export.snapshot_check import verify
    from grading_app.publish.export.snapshots import make_snapshot
    from grading_app.study_import.import_jobs import import_source
    from grading_app.study_import.importers import read_source
    from grading_app.study_import.snapshot_import import import_snapshot
    from grading_app.study_import.source_import import ImportOptions
    from grading_app.study_import.study import DesignNames
    from runs_app.models import Experiment

    experiment, archive = Experiment.objects.get(slug=slug), folder / "made.zip"
    if name == "snapshot":
        return lambda: write_export(read_file(make_snapshot(experiment, by="benchmark").path), str(archive))
    if name == "verify":
        return lambda: verify(archive)
    owner = User.objects.get_or_create(username="benchmark")[0]
    if name == "import":
        return lambda: import_snapshot(archive, owner)
    records = folder / "records.jsonl"  # The step `import-records` needs the step `records` before it.
    if name == "import-records":
        return lambda: import_source(read_source(records), ImportOptions(owner, DesignNames(f"{slug}-records")))
    return lambda: write_export(export_chunks(experiment, "records", "jsonl"), str(records))


def read_peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(sizes: list[int], steps: list[str]) -> None:
    from django.conf import settings
    from django.db import connection

    from benchmarks.stored import temporary_database  # It sets Django up.
    from evalsite.lib.ops.postgres import Embedded

    fresh = multiprocessing.get_context("spawn")
    server = nullcontext() if os.environ.get("DATABASE_URL") else Embedded(settings.DATA_DIR / "postgres").running()
    with server, temporary_database():
        database = connection.settings_dict["NAME"]
        for size in sizes:
            slug, trials = create_study(size)
            connection.close()
            with tempfile.TemporaryDirectory() as folder:
                for name in steps:
                    results = fresh.Queue()
                    process = fresh.Process(target=run_step, args=(name, slug, folder, database, results))
                    process.start()
                    process.join()
                    if process.exitcode:
                        sys.exit(f"{name} failed")
                    seconds, before, peak = results.get()
                    per_trial_us = seconds / trials * 1e6
                    print(
                        f"{name}: {trials:,} trials in {seconds:.1f} s, {per_trial_us:.0f} us each; "
                        f"memory {peak} MB, {before} MB before",
                        flush=True,
                    )
                if (archive := Path(folder) / "made.zip").exists():
                    print(f"snapshot file: {archive.stat().st_size / 2**20:,.0f} MB", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("trials", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    options = parser.parse_args()
    main(options.trials, options.steps)
