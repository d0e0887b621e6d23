"""The cost of a claim with many workers at one endpoint, and where one PostgreSQL ends.

    python -m benchmarks.contention [--workers 10 100 1000] [--seconds 40] [--batch 64] [--trials 2000000]

`pgbench` plays the workers, so that one machine can have a thousand. Each sends the statements of a worker's cycle that
hold the endpoint's lock: lock the counters, claim a batch after its last position, write the counters, commit. It
claims again at once, so all workers wait for the lock at any time. The script prints claims a second and the mean time
of a cycle in the second half of the time, because each connection plans its statements in its first cycle. It also
prints the share of updates that were heap-only, and the server's time of a claim from the start of the run.
Autovacuum is off for the trials.

The cluster is its own, in a temporary folder. Beyond 1,000 workers PostgreSQL needs more connections than it can serve.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

UPDATES = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'runs_app_trial'"
STOP_WORKERS = """
SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE application_name = 'pgbench'
"""
CLAIMED = "SELECT count(*) FROM runs_app_trial WHERE status = 'running'"


def write_cycle(run: Any, batch: int) -> str:
    """Return the cycle as a script of pgbench, which notes its claim position as a worker does."""
    from runs_app.engine.admission import CLAIM_FOR_WORKER
    from runs_app.engine.counters import LOCKS, WRITE_CHANGES
    from runs_app.engine.endpoint_state import LOCK_ENDPOINT
    from runs_app.engine.prepared_sql import to_pg_json

    endpoint, experiment = run.condition.model.endpoint_id, run.experiment_id
    change: dict[str, Any] = {
        "pending": -batch,
        "running": batch,
        "done": 0,
        "failed": 0,
        "cancelled": 0,
        "attempts": 0,
    }
    change |= {"permanent": 0, "unpriced": 0, "spent_usd": 0, "input_tokens": 0, "output_tokens": 0, "errors": {}}
    requested = f"""json_build_array(json_build_object('run', {run.pk}, 'n', {batch}, 'reserve', 0, 'lease', 60.0,
        'attempts', 0, 'place', 0, 'sample_idx', :sample::int, 'item_id', :item::bigint))"""
    claim = (
        CLAIM_FOR_WORKER.strip().replace("\nUPDATE", ", claimed AS (UPDATE")
        + """) SELECT sample_idx AS sample,
        item_id AS item FROM (SELECT sample_idx, item_id FROM claimed UNION ALL SELECT :sample::int, :item::bigint) AS p
        ORDER BY 1 DESC, 2 DESC LIMIT 1 \\gset"""
    )
    lock_experiments, lock_runs = LOCKS[True]
    statements = [
        ("SELECT set_config('synchronous_commit', 'off', true)", []),
        (LOCK_ENDPOINT, [endpoint]),
        (lock_experiments, ["'{}'", endpoint]),
        (lock_runs, ["false", "'{}'", endpoint]),
        (claim, [requested, "gen_random_uuid()", "1"]),
        (
            WRITE_CHANGES,
            [
                f"'{to_pg_json(rows)}'"
                for rows in (
                    [{"id": endpoint, "n": batch, "batched": 0, "answered": 0, "overloaded": 0}],
                    [{"id": experiment, "spent": 0, "reserved": 0}],
                    [{"id": run.pk, **change}],
                )
            ],
        ),
    ]
    texts = [" ".join((sql % tuple(values)).split()) for sql, values in statements]
    lines = [text if text.endswith("gset") else f"{text};" for text in texts]  # It ends a statement by itself.
    return "\n".join(["BEGIN;", *lines, "COMMIT;", "SELECT pg_logical_emit_message(true, 'evalsite', '');"])


def fetch(sql: str) -> tuple[Any, ...]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql)
        return tuple(cursor.fetchone())


def play(workers: int, script: Path, seconds: int) -> tuple[float, float]:
    """Run the workers for these seconds. Return cycles a second and the mean milliseconds of a cycle.

    Both are of the second half of the time. Workers that still wait at the end are stopped.
    """
    from django.db import connection

    from evalsite.lib.ops.postgres_programs import find_programs

    names = connection.get_connection_params()
    environment = {"PGHOST": names["host"], "PGPORT": str(names["port"]), "PGUSER": names["user"]}
    arguments = [
        "--no-vacuum",
        "--protocol=prepared",
        "--define=sample=0",
        "--define=item=0",
        f"--client={workers}",
        "--jobs=1",
        f"--time={10 * seconds}",
        "--progress=2",
    ]
    program = [str(find_programs() / "pgbench"), *arguments, f"--file={script}", names["dbname"]]
    environment = {**os.environ, **environment}
    try:
        printed = subprocess.run(program, env=environment, capture_output=True, timeout=seconds).stderr
    except subprocess.TimeoutExpired as stopped:
        printed = stopped.stderr or b""
    fetch(STOP_WORKERS)
    intervals = re.findall(r"progress: [\d.]+ s, ([\d.]+) tps, lat ([\d.]+) ms", printed.decode())
    later = [(float(rate), float(latency)) for rate, latency in intervals[len(intervals) // 2 :]]
    if not later:
        raise SystemExit(printed.decode()[-2000:])
    cycles = sum(rate for rate, _ in later)
    return cycles / len(later), sum(rate * latency for rate, latency in later) / max(cycles, 0.1)


def main(options: argparse.Namespace, folder: Path) -> None:
    from django.db import connection

    from benchmarks.unvacuumed import measure
    from runs_app.engine.claim_order import START
    from runs_app.models import Run
    from runs_app.planning import plan as plan_module
    from tests import factories

    endpoint = factories.make_endpoint("fast", max_concurrency=100_000, adaptive=False)
    experiment = factories.make_experiment(
        "contention",
        dataset=factories.make_dataset("many", 1000),
        models=[factories.make_model("m", endpoint=endpoint)],
        samples=options.trials // 1000,
        max_usd=None,
    )
    plan_module.plan(experiment)
    Run.objects.update(status="running")
    run = Run.objects.select_related("condition__model").get()
    script = folder / "cycle.sql"
    script.write_text(write_cycle(run, options.batch))
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_app_trial SET (autovacuum_enabled = off)")
        cursor.execute("ANALYZE")
        for workers in options.workers:
            (before,) = fetch(CLAIMED)
            cycles, milliseconds = play(workers, script, options.seconds)
            (after,) = fetch(CLAIMED)
            updates, hot = fetch(UPDATES)
            (of_claim,) = measure(cursor, run.pk, [START._asdict()])
            print(
                f"{workers:,} workers: {cycles * options.batch:,.0f} claims/s "
                f"({(after - before):,} in all), a cycle {milliseconds:,.1f} ms; then a claim of {options.batch} "
                f"takes the server {of_claim:.1f} ms; {hot:,} of {updates:,} updates heap-only; "
                f"load {os.getloadavg()[0]:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--trials", type=int, default=2_000_000)
    chosen = parser.parse_args()
    os.environ.pop("DATABASE_URL", None)
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        os.environ["EVALSITE_DATA_DIR"] = name
        import django

        django.setup()
        from django.conf import settings

        from benchmarks.stored import temporary_database
        from evalsite.lib.ops import postgres

        enough = {"max_connections": str(max(chosen.workers) + 50)}
        server = postgres.Embedded(settings.DATA_DIR / "postgres")
        with patch.dict(postgres.SETTINGS, enough), server.running(), temporary_database():
            main(chosen, Path(name))
