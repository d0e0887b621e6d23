"""What a claim costs after many claims without a vacuum: from the start of a run, and from the worker's claim position.

    python -m benchmarks.unvacuumed [TRIALS]

All trials but the last 20,000 of a run are claimed and recorded by SQL, with autovacuum off for the table. Then the
claim statement takes batches of 64, in turn in both ways. It prints medians in milliseconds, by the database itself.
"""

from __future__ import annotations

import os
import statistics
import sys
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

REMAINING, BATCH, REPEATS = 20_000, 64, 20
CLAIM_MANY = """
UPDATE runs_app_trial SET status = 'running', attempts = 1, token = gen_random_uuid(), lease_until = clock_timestamp()
WHERE id IN (SELECT id FROM runs_app_trial ORDER BY place, sample_idx, item_id LIMIT %s)
"""
RECORD_MANY = "UPDATE runs_app_trial SET status = 'done', token = NULL, lease_until = NULL WHERE status = 'running'"
NEXT = """
SELECT attempts, place, sample_idx, item_id FROM runs_app_trial WHERE status = 'pending'
ORDER BY attempts, place, sample_idx, item_id LIMIT 1
"""


def measure_claim(cursor: Any, run_id: int, position: dict[str, int]) -> float:
    """Return the milliseconds of one claim."""
    from runs_app.engine.admission import CLAIM_FOR_WORKER
    from runs_app.engine.prepared_sql import to_pg_json

    requested = to_pg_json([{"run": run_id, "n": BATCH, "reserve": 0, "lease": 60.0, **position}])
    cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {CLAIM_FOR_WORKER}", [requested, uuid.uuid4(), None])
    return float(cursor.fetchone()[0][0]["Execution Time"])


def main() -> None:
    from benchmarks.stored import temporary_database

    trials = int(sys.argv[1]) if sys.argv[1:] else 1_000_000
    with temporary_database():
        from django.db import connection

        from runs_app.engine.claim_order import START
        from runs_app.planning import plan as plan_module
        from tests import factories

        experiment = factories.make_experiment(
            "unvacuumed", dataset=factories.make_dataset("many", 1000), samples=trials // 1000, max_usd=None
        )
        plan_module.plan(experiment)
        run_id = experiment.runs.get().pk
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE runs_app_trial SET (autovacuum_enabled = off)")
            cursor.execute("ANALYZE runs_app_trial")
            print(f"first claims: {measure(cursor, run_id, [START._asdict()])[0]:.2f} ms")
            cursor.execute(CLAIM_MANY, [trials - REMAINING])
            cursor.execute(RECORD_MANY)
            cursor.execute(NEXT)
            position = dict(zip(START._fields, cursor.fetchone(), strict=True))
            from_start, from_position = measure(cursor, run_id, [START._asdict(), position])
            print(f"after {trials - REMAINING:,} claims: {from_start:.2f} ms from the start of the run,")
            print(f"  {from_position:.2f} ms from the worker's position")


def measure(cursor: Any, run_id: int, positions: list[dict[str, int]]) -> list[float]:
    """Return the median of claims from each position, which take turns."""
    rounds = [[measure_claim(cursor, run_id, position) for position in positions] for _ in range(REPEATS)]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


if __name__ == "__main__":
    main()
