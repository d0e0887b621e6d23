"""Processor time of HTTP clients: aiohttp as workers use it, with uvloop, and a client in Rust.

    python -m benchmarks.clients [--calls 3000] [--in-flight 64] [--latency-ms 50] [--rounds 3]

Each client sends the same JSON to one simulated provider and parses the reply, in turn and in a fresh process.
pyreqwest is no dependency of the site: install it beside the site to measure it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import statistics
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

from benchmarks.gateway import AiohttpCaller, build_messages, measure
from runs_app.simulator import SimulatorConfig, simulator_process

CLIENTS = {"aiohttp": "aiohttp", "pyreqwest": "pyreqwest.client"}


def run_client(client: str, uses_uvloop: bool, url: str, calls: int, in_flight: int) -> dict[str, float]:
    """Measure one client in this process."""

    async def run() -> dict[str, float]:
        if client == "aiohttp":
            return await measure(AiohttpCaller(url, ""), calls, in_flight)
        builder: Any = importlib.import_module(CLIENTS[client]).ClientBuilder()
        async with builder.build() as session:

            async def call(number: int) -> Any:
                body = {"model": "sim-a", "messages": build_messages(number, ""), "temperature": 1.0, "max_tokens": 64}
                reply = await session.post(f"{url}/chat/completions").body_json(body).build().send()
                return await reply.json()

            return await measure(call, calls, in_flight)

    if uses_uvloop:
        numbers: dict[str, float] = importlib.import_module("uvloop").run(run())
        return numbers
    return asyncio.run(run())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    loops = [False, True] if find_spec("uvloop") else [False]
    ways = [(client, uses_uvloop) for client in CLIENTS if find_spec(client) for uses_uvloop in loops]
    rows: dict[tuple[str, bool], list[dict[str, float]]] = {way: [] for way in ways}
    with simulator_process(SimulatorConfig(latency_ms=options.latency_ms)) as provider:
        for _ in range(options.rounds):
            for way in ways:
                with get_context("spawn").Pool(1) as pool:
                    arguments = (*way, provider.url, options.calls, options.in_flight)
                    rows[way].append(pool.apply(run_client, arguments))
    for (client, uses_uvloop), rounds in rows.items():
        rate, processor = (statistics.median(row[name] for row in rounds) for name in ("calls_per_s", "processor_ms"))
        print(f"{client + (' with uvloop' if uses_uvloop else ''):24} {rate:,.0f} calls/s, {processor:.3f} ms a call")


if __name__ == "__main__":
    main()
