"""Claim and record without calls: admission, counters and synchronous commits included, on a temporary database.

python benchmarks/claiming.py --workers 4 --trials 200000 --batch 256 --rounds 1

Each round runs bare SQL first (`bare_claiming.py`: the best rate of this server), then the engine, and prints the
ratio.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

ANSWER = {"raw_response": "four", "answer": "four", "input_tokens": 20, "output_tokens": 5, "latency_ms": 50}
CALL = {"outcome": "ok", "cost_usd": "0.00001", **{name: ANSWER[name] for name in ("input_tokens", "output_tokens")}}


def work(database: str, batch: int) -> tuple[int, float, float]:
    """Claim and record until nothing is left. Return the number of results, and the wall times of start and end."""
    import django

    django.setup()
    from django.db import connection

    connection.settings_dict["NAME"] = database
    from runs_app.engine.admission import WorkerCapacity
    from runs_app.engine.claim_order import ClaimPositions
    from runs_app.engine.recorder import Result
    from runs_app.engine.worker_cycle import run_cycle
    from runs_app.engine.worker_registration import WorkerRegistration
    from runs_app.models import Run

    worker, n_written = WorkerRegistration().worker_id, 0
    results: list[Result] = []
    positions = ClaimPositions()
    start = time.time()
    while True:
        cycle = run_cycle(results, worker, WorkerCapacity(batch, positions=positions))
        n_written += cycle.recorded
        results = [Result(claim, "done", dict(ANSWER), [dict(CALL)]) for claim in cycle.claims]
        if not results:  # At the end, or at the start, while the endpoint's limit still grows from its first few slots.
            if not Run.objects.filter(n_pending__gt=0).exists():
                return n_written, start, time.time()
            time.sleep(0.002)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--trials", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    from benchmarks.stored import temporary_database

    for _ in range(options.rounds):
        with temporary_database():
            bare_rate = measure_bare_sql(options)
        with temporary_database():
            print(f"{measure(options) / bare_rate:.2f} of bare SQL")


def compute_rate(rows: list[tuple[int, float, float]]) -> float:
    """Return results per second, from the start of the first worker to the end of the last."""
    return sum(row[0] for row in rows) / (max(row[2] for row in rows) - min(row[1] for row in rows))


def measure_bare_sql(options: argparse.Namespace) -> float:
    from django.db import connection

    from benchmarks import bare_claiming

    params = connection.get_connection_params()
    parameters = {name: params[name] for name in ("dbname", "user", "password", "host", "port") if params.get(name)}
    bare_claiming.create_tables(parameters, options.trials)
    with get_context("spawn").Pool(options.workers) as pool:
        per_second = compute_rate(pool.starmap(bare_claiming.work, [(parameters, options.batch)] * options.workers))
    print(f"bare SQL: {per_second:,.0f} per second")
    return per_second


def measure(options: argparse.Namespace) -> float:
    from django.db import connection

    from grading_app.grading.consistency_check import find_differences
    from runs_app.models import Run
    from runs_app.planning import plan as plan_module
    from tests import factories

    dataset = factories.make_dataset("many", 1000)
    experiment = factories.make_experiment(
        "claiming",
        dataset=dataset,
        models=[factories.make_model("m", endpoint=factories.make_endpoint("fast", max_concurrency=100_000))],
        samples=options.trials // 1000,
        max_usd=None,
        max_concurrency=100_000,
    )
    plan_module.plan(experiment)
    Run.objects.update(status="running")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    with get_context("spawn").Pool(options.workers) as pool:
        rows = pool.starmap(work, [(connection.settings_dict["NAME"], options.batch)] * options.workers)
    per_second = compute_rate(rows)
    print(f"{options.trials:,} trials by {options.workers} in batches of {options.batch}: {per_second:,.0f} per second")
    print("counters equal the rows" if not find_differences() else find_differences())
    return per_second


if __name__ == "__main__":
    main()
