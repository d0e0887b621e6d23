"""A complete experiment of a million trials: planned, run by real worker processes, browsed, exported.

    python -m benchmarks.million [--trials 1000000] [--workers 2] [--in-flight 512]

The workers are real, in separate processes. Their provider is a coroutine that answers immediately, so the benchmark
measures everything except the calls. Counters must equal the rows at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

MODELS, ITEMS = 5, 1000


def run_worker(database: str, in_flight: int) -> tuple[int, float]:
    """Run a worker until all is done. Return the number of its results, and its processor seconds."""
    import django

    django.setup()
    from django.db import connection

    connection.settings_dict["NAME"] = database
    from runs_app.batches.batch_worker import BatchWorker
    from runs_app.engine.worker import Drain, DrainLimits
    from runs_app.engine.worker_registration import WorkerRegistration
    from tests.factories.engine import build_reply

    answer = build_reply("The sum is 4. ANSWER: 4")

    async def call(_request: object) -> Any:
        return answer

    limits = DrainLimits(concurrency=in_flight, until_idle=True)
    drain = Drain(call, WorkerRegistration(), limits, make_batch_worker=BatchWorker)
    start = time.process_time()
    return asyncio.run(drain.run()), time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--in-flight", type=int, default=512, help="of each worker")
    options = parser.parse_args()
    from benchmarks.stored import temporary_database

    with temporary_database():
        run_experiment(options)


def run_experiment(options: argparse.Namespace) -> None:
    from runs_app.models import Experiment, Run
    from runs_app.planning import plan as plan_module

    experiment = create_experiment(options)
    measure_time("plan", options.trials, lambda: plan_module.plan(experiment))
    Experiment.objects.filter(pk=experiment.pk).update(status="active")
    Run.objects.update(status="running")
    rows = measure_time("drain", options.trials, lambda: run_workers(options))
    processor = 1000 * sum(seconds for _, seconds in rows) / sum(n for n, _ in rows)
    print(
        f"  {options.workers} workers wrote {[n for n, _ in rows]}; {processor:.2f} ms of their processor time a trial"
    )
    measure_time("reconcile", options.trials, check_counters)
    measure_pages(experiment)
    measure_export(experiment, options.trials)


def create_experiment(options: argparse.Namespace) -> Any:
    from tests import factories

    capacity = options.workers * options.in_flight
    endpoint = factories.make_endpoint("at-once", is_free=True, max_concurrency=capacity, adaptive=False)
    return factories.make_experiment(
        "million",
        dataset=factories.make_dataset("many", ITEMS),
        models=[factories.make_model(f"m{at}", endpoint=endpoint, model=f"m{at}") for at in range(MODELS)],
        samples=max(1, options.trials // ITEMS // MODELS),
        max_concurrency=capacity,
        cache=False,
        max_usd=None,
    )


def measure_time(label: str, n: int, work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    print(f"{label}: {seconds:,.1f} s, {n / seconds:,.0f} trials/s", flush=True)
    return result


def run_workers(options: argparse.Namespace) -> list[tuple[int, float]]:
    from django.db import connection, connections

    database = connection.settings_dict["NAME"]
    connections.close_all()
    with get_context("spawn").Pool(options.workers) as pool:
        return pool.starmap(run_worker, [(database, options.in_flight)] * options.workers)


def check_counters() -> None:
    from grading_app.grading.consistency_check import find_differences
    from runs_app.models import Run

    if problems := find_differences() or list(Run.objects.exclude(status="done")):
        raise SystemExit(f"not all is done, or counters do not equal the rows: {problems[:3]}")


def measure_pages(experiment: Any) -> None:
    from django.test import Client

    from runs_app.models import Run

    client = Client()
    client.force_login(experiment.owner)
    run = Run.objects.filter(experiment=experiment).earliest("pk")
    pages = [f"/experiments/{experiment.slug}/", f"/trials/?experiment={experiment.pk}", f"/runs/{run.pk}/"]
    for page in pages:
        client.get(page, HTTP_HOST="localhost")
        start = time.perf_counter()
        response = client.get(page, HTTP_HOST="localhost")
        print(f"page {page}: {1000 * (time.perf_counter() - start):,.0f} ms, status {response.status_code}")


def measure_export(experiment: Any, n: int) -> None:
    from django.core.management import call_command

    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "trials.csv")
        measure_time(
            "export",
            n,
            lambda: call_command("export", experiment.slug, table="trials", format="csv", out=out, verbosity=0),
        )
        with Path(out).open("rb") as file:
            rows = sum(1 for _ in file) - 1
        print(f"  {rows:,} rows")


if __name__ == "__main__":
    main()
