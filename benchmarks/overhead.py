"""Processor time of the engine per trial, without a model call: the provider is a coroutine that sleeps.

python -m benchmarks.overhead [--trials 4000] [--in-flight 64] [--latency-ms 50]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")


def run_round(number: int, options: argparse.Namespace) -> float:
    """Return milliseconds of this process's processor time per trial.

    This includes claim, request, record, counters, and two commits for each batch.
    """
    from benchmarks.drain import create_experiment
    from runs_app.batches.batch_worker import BatchWorker
    from runs_app.engine.worker import Drain, DrainLimits
    from runs_app.engine.worker_registration import WorkerRegistration
    from runs_app.llm.calls import CallReply, CallRequest
    from runs_app.models import Run
    from runs_app.planning import plan as plan_module
    from tests.factories.engine import build_reply

    experiment = create_experiment(f"overhead-{number}", "http://127.0.0.1:9/v1", options.trials, options.in_flight)
    plan_module.plan(experiment)
    Run.objects.filter(experiment=experiment).update(status="running")
    registration = WorkerRegistration()
    answer: CallReply = build_reply("four")

    async def call(request: CallRequest) -> CallReply:
        await asyncio.sleep(options.latency_ms / 1000)
        return answer

    async def run() -> int:
        return await Drain(call, registration, DrainLimits(until_idle=True), make_batch_worker=BatchWorker).run()

    wall, processor = time.perf_counter(), time.process_time()
    n_done = asyncio.run(run())
    milliseconds = 1000 * (time.process_time() - processor) / n_done
    print(
        f"{n_done:,} trials, {n_done / (time.perf_counter() - wall):,.0f}/s, {milliseconds:.3f} ms of processor a trial"
    )
    return milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=50)
    options = parser.parse_args()
    from benchmarks.stored import temporary_database

    with temporary_database():
        rounds = [run_round(number, options) for number in range(3)]
    print(f"median: {statistics.median(rounds):.3f} ms")


if __name__ == "__main__":
    main()
