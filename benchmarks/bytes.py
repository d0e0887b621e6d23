"""What a trial costs on disk, by part: row, texts, attempts, ledger, response cache, and each index.

    python -m benchmarks.bytes [--trials 20000] [--answer-chars 600] [--thought-chars 0] [--stay]

Real workers' code claims and records the trials, with an answer of random words. With --thought-chars, the raw response
also has so many characters of thought. After that, the tables are vacuumed. It also prints how often each index was
read. Then raw responses are removed by the retention rule, and the rows move to a file and back.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from datetime import timedelta
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


def write_text(chars: int) -> str:
    return " ".join(random.choices(WORDS, k=chars // 6 + 1))[:chars]


def record_all(batch: int, answer_chars: int, thought_chars: int) -> None:
    """Claim and record all trials, each with an answer of its own."""
    from runs_app.engine.admission import WorkerCapacity
    from runs_app.engine.claim_order import ClaimPositions
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
            text, thought = write_text(answer_chars), write_text(thought_chars)
            raw = f"<think>{thought}</think>{text}" if thought else text
            facts = {"input_tokens": 200, "output_tokens": answer_chars // 4, "latency_ms": 850, "cost_usd": "0.0004"}
            facts |= {"finish_reason": "stop", "served_model": "vendor/model-2026", "served_provider": "vendor"}
            facts |= {"response_id": f"chatcmpl-{claim.trial_id:024}", "request_hash": f"{claim.trial_id:064x}"}
            call = {"outcome": "ok", "trace_id": f"{claim.trial_id:032x}", **facts}
            results.append(Result(claim, "done", {"raw_response": raw, "answer": text, **facts}, [call]))
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
    parser.add_argument("--thought-chars", type=int, default=0)
    parser.add_argument("--stay", action="store_true", help="neither remove raw responses nor move the rows to a file")
    options = parser.parse_args()
    from benchmarks.stored import temporary_database

    with temporary_database():
        from django.utils import timezone

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
        record_all(256, options.answer_chars, options.thought_chars)
        print(f"{options.trials:,} trials with answers of {options.answer_chars:,} characters, before a vacuum:")
        print_sizes(options.trials)
        print("written anew, without the space of earlier versions of rows:")
        write_anew(options.trials)
        if options.stay:
            return
        from grading_app.grading.retention import remove_raw_responses
        from grading_app.study_import.stored_rows import bring_back, store_rows

        # Every run must have ended for the retention rule. Its time of the end is a day before.
        Run.objects.update(status="done", finished_at=timezone.now() - timedelta(days=1))
        started = time.perf_counter()
        removed = remove_raw_responses(0, by="benchmark")
        print(f"{removed:,} raw responses removed in {time.perf_counter() - started:.1f} s:")
        write_anew(options.trials)
        experiment.archive(by="benchmark")
        started = time.perf_counter()
        stored = store_rows(experiment, by="benchmark")
        seconds = time.perf_counter() - started
        print(f"rows in a file of {stored.size / options.trials:,.0f} bytes a trial, after {seconds:.1f} s:")
        write_anew(options.trials)
        started = time.perf_counter()
        bring_back(experiment, by="benchmark")
        print(f"rows back after {time.perf_counter() - started:.1f} s:")
        write_anew(options.trials)


def write_anew(trials: int) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM FULL")
    print_sizes(trials)


if __name__ == "__main__":
    main()
