"""The worker compared with bare litellm, in one run: calls per second and processor time, on one simulated provider.

    python -m benchmarks.drain [--trials 4000] [--in-flight 64] [--latency-ms 50] [--rounds 3]

It measures in turn, each in a fresh process: aiohttp alone, `litellm.acompletion` with its defaults, and tuned; our
gateway alone; one worker with all guarantees; two workers. Rates of workers run from the first claim to the last
record, by the times in the database. Each ratio is the median over the rounds of the ratio within a round, because
other load on the machine changes from round to round.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")


def measure_bare_calls(kind: str, url: str, calls: int, in_flight: int) -> dict[str, float]:
    """Measure calls without a database: by aiohttp alone, litellm's own, or through our gateway."""
    from benchmarks import gateway

    callers: dict[str, Any] = {
        "aiohttp": gateway.AiohttpCaller,
        "litellm": gateway.make_default_caller,
        "tuned": gateway.make_tuned_caller,
        "gateway": gateway.make_gateway_caller,
    }
    return asyncio.run(gateway.measure(callers[kind](url, ""), calls, in_flight))


def run_worker(database: str, in_flight: int, barrier: Any) -> tuple[int, float]:
    """Run one worker. Return the number of its results and its processor seconds, after the warm-up."""
    import django

    django.setup()
    from django.db import connection

    connection.settings_dict["NAME"] = database
    from runs_app.batches.batch_worker import BatchWorker
    from runs_app.engine.worker import Drain, DrainLimits
    from runs_app.engine.worker_registration import WorkerRegistration
    from runs_app.llm import gateway

    gateway.warm_up()
    registration = WorkerRegistration()

    async def run() -> int:
        try:
            limits = DrainLimits(concurrency=in_flight, until_idle=True)
            return await Drain(gateway.call, registration, limits, make_batch_worker=BatchWorker).run()
        finally:
            await gateway.close_session()

    barrier.wait()
    start = time.process_time()
    return asyncio.run(run()), time.process_time() - start


def measure_workers(workers: int, url: str, options: argparse.Namespace) -> dict[str, float]:
    """Measure this number of workers on a new experiment."""
    from django.db import connection, connections

    from grading_app.grading.consistency_check import find_differences
    from runs_app.models import Run
    from runs_app.planning import plan as plan_module

    # The endpoint's limit: each worker has its calls in flight, and as many prefetched claims.
    capacity = 2 * options.in_flight * workers
    experiment = create_experiment(f"drain-{workers}-{time.monotonic_ns()}", url, options.trials, capacity)
    plan_module.plan(experiment)
    Run.objects.filter(experiment=experiment).update(status="running")
    connections.close_all()
    context = get_context("spawn")
    with context.Manager() as manager, context.Pool(workers) as pool:
        barrier = manager.Barrier(workers)
        rows = pool.starmap(run_worker, [(connection.settings_dict["NAME"], options.in_flight, barrier)] * workers)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), extract(epoch FROM max(completed_at) - min(claimed_at)) FROM runs_app_trial t"
            " JOIN runs_app_run r ON r.id = t.run_id WHERE r.experiment_id = %s AND t.status = 'done'",
            [experiment.pk],
        )
        n_done, seconds = cursor.fetchone()
    if find_differences() or n_done != experiment.samples * 1000:
        raise SystemExit("the counters do not equal the rows")
    return {"calls_per_s": n_done / float(seconds), "processor_ms": 1000 * sum(row[1] for row in rows) / n_done}


def create_experiment(slug: str, url: str, trials: int, in_flight: int) -> Any:
    from tests import factories

    endpoint = factories.make_endpoint(slug, base_url=url, max_concurrency=in_flight, is_free=True)
    return factories.make_experiment(
        slug,
        dataset=factories.make_dataset(f"{slug}-items", 1000),
        models=[factories.make_model(slug, endpoint=endpoint, model="sim-a")],
        samplers=[factories.make_sampler(slug, temperature=1.0, max_tokens=64)],
        samples=trials // 1000,
        max_concurrency=in_flight,
        cache=False,  # Every round sends the same requests: with a cache only the first round would make calls.
        max_usd=None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from benchmarks.stored import temporary_database
    from runs_app.simulator import SimulatorConfig, simulator_process

    rows: dict[str, list[dict[str, float]]] = {}
    with temporary_database(), simulator_process(SimulatorConfig(latency_ms=options.latency_ms)) as provider:
        for _ in range(options.rounds):
            for name, measure in list_measurements(provider.url, options).items():
                rows.setdefault(name, []).append(measure())
                print(f"  {name}: {rows[name][-1]['calls_per_s']:,.0f}/s", flush=True)
    print_report(rows, limit=options.in_flight / (options.latency_ms / 1000))


def list_measurements(url: str, options: argparse.Namespace) -> dict[str, Any]:
    def alone(kind: str) -> dict[str, float]:
        with get_context("spawn").Pool(1) as pool:
            return pool.apply(measure_bare_calls, (kind, url, options.trials, options.in_flight))

    return {
        "aiohttp alone": lambda: alone("aiohttp"),
        "litellm.acompletion, defaults": lambda: alone("litellm"),
        "litellm.acompletion, tuned": lambda: alone("tuned"),
        "our gateway alone": lambda: alone("gateway"),
        "one drain": lambda: measure_workers(1, url, options),
        "two drains": lambda: measure_workers(2, url, options),
    }


def print_report(rows: dict[str, list[dict[str, float]]], limit: float) -> None:
    """Print a row for each measurement. No ratio can exceed that of `limit`: all slots always wait for the provider."""

    def median(name: str, figure: str) -> float:
        return statistics.median(row[figure] for row in rows[name])

    def compare(name: str, other: str) -> float:
        pairs = zip(rows[name], rows[other], strict=True)
        return statistics.median(one["calls_per_s"] / two["calls_per_s"] for one, two in pairs)

    print("| what | calls/s | processor ms a call | against bare litellm | against aiohttp |")
    print("| --- | --- | --- | --- | --- |")
    for name in rows:
        rate, cpu = median(name, "calls_per_s"), median(name, "processor_ms")
        ratios = (compare(name, other) for other in ("litellm.acompletion, defaults", "aiohttp alone"))
        print(f"| {name} | {rate:,.0f} | {cpu:.2f} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")
    rates = (median(name, "calls_per_s") for name in ("litellm.acompletion, defaults", "aiohttp alone"))
    print(f"| highest possible | {limit:,.0f} | - | {' | '.join(f'{limit / rate:.2f}' for rate in rates)} |")


if __name__ == "__main__":
    main()
