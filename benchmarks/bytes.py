"""What a trial costs on disk, by part: row, texts, attempts, ledger, response cache, and each index.

    python -m benchmarks.bytes [--trials 20000] [--answer-chars 600]

Real workers' code claims and records the trials, with an answer of random words. After that, the tables are vacuumed.
It also prints how often each index was read.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

TABLES = ("runs_app_trial", "runs_app_attempt", "runs_app_ledgerentry", "runs_app_cachedanswer")
WORDS = Path(__file__).read_text().split()

SIZES = """
SELECT c.relname, pg_relation_size(c.oid), coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0)
FROM pg_class c WHERE c.relname = ANY(%s)
"""
INDEXES = """
SELECT relname, indexrelname, pg_relation_size(indexrelid), idx_scan FROM pg_stat_user_indexes WHERE relname = ANY(%s)
ORDER BY 1, 3 DESC
"""


def record_all(batch: int, answer_chars: int) -> None:
    """Claim and record all trials, each with an answer of its own."""
    from runs_app.engine.admission import WorkerCapacity
    from runs_app.engine.claim_positions import ClaimPositions
    from runs_app.engine.recorder import Result
    from runs_app.engine.worker_cycle import run_cycle
    from runs_app.engine.worker_registration import WorkerRegistration
    from runs_app.models import Run

    worker, positions = WorkerRegistration().worker_id, ClaimPositions()
    results: list[Result] = []
    while True:
        cycle = run_cycle(results, worker, WorkerCapacity(batch, positions=positions))
        results = []
        for claim in cycle.claims:
            text = " ".join(random.choices(WORDS, k=answer_chars // 6))[:answer_chars]
            facts = {"input_tokens": 200, "output_tokens": answer_chars // 4, "latency_ms": 850, "cost_usd": "0.0004"}
            facts |= {"finish_reason": "stop", "served_model": "vendor/model-2026", "served_provider": "vendor"}
            facts |= {"response_id": f"chatcmpl-{claim.trial_id:024}", "request_hash": f"{claim.trial_id:064x}"}
            call = {"outcome": "ok", "trace_id": f"{claim.trial_id:032x}", **facts}
            results.append(Result(claim, "done", {"raw_response": text, "answer": text, **facts}, [call]))
        if not results and not Run.objects.filter(n_pending__gt=0).exists():
            return


def print_sizes(trials: int) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(SIZES, [list(TABLES)])
        sizes = cursor.fetchall()
        cursor.execute(INDEXES, [list(TABLES)])
        indexes = cursor.fetchall()
    total = sum(rows + toast for _, rows, toast in sizes) + sum(size for _, _, size, _ in indexes)
    print(f"{total / trials:,.0f} bytes a trial")
    for table, rows, toast in sizes:
        print(f"  {table}: {rows / trials:,.0f} in rows, {toast / trials:,.0f} in long texts")
        for owner, name, size, scans in indexes:
            if owner == table:
                print(f"    {name}: {size / trials:,.0f}, read {scans:,} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--answer-chars", type=int, default=600)
    options = parser.parse_args()
    from benchmarks.stored import temporary_database

    with temporary_database():
        from django.db import connection

        from runs_app.models import Run
        from runs_app.planning import plan as plan_module
        from tests import factories

        endpoint = factories.make_endpoint("fast", max_concurrency=100_000)
        experiment = factories.make_experiment(
            "bytes",
            dataset=factories.make_dataset("many", 1000),
            models=[factories.make_model("m", endpoint=endpoint)],
            samples=options.trials // 1000,
            max_usd=None,
            max_concurrency=100_000,
        )
        plan_module.plan(experiment)
        Run.objects.update(status="running")
        record_all(256, options.answer_chars)
        print(f"{options.trials:,} trials with answers of {options.answer_chars:,} characters, before a vacuum:")
        print_sizes(options.trials)
        with connection.cursor() as cursor:
            cursor.execute("VACUUM FULL")
        print("written anew, without the space of earlier versions of rows:")
        print_sizes(options.trials)


if __name__ == "__main__":
    main()
