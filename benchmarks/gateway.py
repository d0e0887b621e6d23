"""Calls per second through our gateway, and through `litellm.acompletion` with its defaults, in one run.

    python -m benchmarks.gateway [--calls 6000] [--in-flight 64] [--latency-ms 50] [--image-kb 0] [--rounds 3]

Both call the same simulated provider, which runs in a separate process. They take turns. Each round runs in a fresh
process, because the imports and the frozen objects of one would affect the other.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from runs_app.llm.calls import ImageURL
from runs_app.simulator import SimulatorConfig, simulator_process

RATE = 'Rate the valence of this from 1 to 7. Answer with JSON alone: {{"rating": N}}.\n\n[{number:010x}]'
WARM_UP = 200


def build_messages(number: int, image: str | Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the messages of a call, with an image or the one that a function returns for its number."""
    image = image if isinstance(image, str) else image(number)
    text = {"type": "text", "text": RATE.format(number=number)}
    picture = {"type": "image_url", "image_url": {"url": image}}
    return [{"role": "user", "content": [text, picture] if image else text["text"]}]


def make_default_caller(url: str, image: str | Callable[[int], str]) -> Callable[[int], Awaitable[Any]]:
    """Return a caller of `litellm.acompletion` as its documentation shows it."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    def call(number: int) -> Awaitable[Any]:
        return litellm.acompletion(  # type: ignore[no-any-return]
            model="openai/sim-a",
            api_base=url,
            api_key="none",
            messages=build_messages(number, image),
            temperature=1.0,
            max_tokens=64,
            timeout=60,
        )

    return call


def make_tuned_caller(url: str, image: str | Callable[[int], str]) -> Callable[[int], Awaitable[Any]]:
    """Return a caller of `litellm.acompletion`, tuned from the outside.

    It uses litellm's own HTTP handler in place of a provider's client, and logs without a thread. The garbage collector
    skips its objects.
    """
    os.environ["EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER"] = "True"
    call = make_default_caller(url, image)
    from litellm import utils
    from litellm.litellm_core_utils import litellm_logging, thread_pool_executor

    inline = InlineExecutor()
    for module in (utils, litellm_logging, thread_pool_executor):
        module.executor = inline
    gc.collect()
    gc.freeze()
    return call


class InlineExecutor:
    """An executor that runs its work at once."""

    def submit(self, work: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
        work(*arguments, **keywords)


class AiohttpCaller:
    """A caller by aiohttp alone, which sends the same JSON and parses the reply: the limit of one process."""

    def __init__(self, url: str, image: str | Callable[[int], str]) -> None:
        self.url, self.image = url, image
        self._session: aiohttp.ClientSession | None = None  # It belongs to the loop of the first call.

    async def __call__(self, number: int) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        body = {"model": "sim-a", "messages": build_messages(number, self.image), "temperature": 1.0, "max_tokens": 64}
        async with self._session.post(f"{self.url}/chat/completions", json=body) as reply:
            return await reply.json()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def make_gateway_caller(url: str, image: str | Callable[[int], str]) -> Callable[[int], Awaitable[Any]]:
    """Return a caller of our gateway, warmed up as a worker does it."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    from runs_app.llm import gateway
    from runs_app.llm.calls import CallRequest

    gateway.warm_up()
    parameters = {"temperature": 1.0, "max_tokens": 64}

    def call(number: int) -> Awaitable[Any]:
        return gateway.call(CallRequest("openai", "sim-a", url, None, build_messages(number, image), parameters))

    return call


async def measure(call: Callable[[int], Awaitable[Any]], calls: int, in_flight: int) -> dict[str, float]:
    """Return calls per second, and milliseconds of processor time per call."""

    async def take_turns(numbers: "range") -> None:
        waiting = iter(numbers)

        async def worker() -> None:
            for number in waiting:
                await call(number)

        await asyncio.gather(*(worker() for _ in range(in_flight)))

    await take_turns(range(calls, calls + WARM_UP))
    start, processor = time.perf_counter(), time.process_time()
    await take_turns(range(calls))
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    if isinstance(call, AiohttpCaller):
        await call.close()
    return {"calls_per_s": calls / seconds, "processor_ms": processor / calls * 1000}


def run_round(kind: str, url: str, options: argparse.Namespace) -> None:
    """Measure one way in the child process, and print the numbers."""
    image = ImageURL.from_data(os.urandom(options.image_kb * 1024), "image/png") if options.image_kb else ""
    caller = {"default": make_default_caller, "ours": make_gateway_caller}[kind](url, image)
    print(json.dumps(asyncio.run(measure(caller, options.calls, options.in_flight))))


def run_in_new_process(kind: str, url: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.gateway", *sys.argv[1:], "--who", kind, "--url", url]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    numbers: dict[str, float] = json.loads(process.stdout.strip().splitlines()[-1])
    return numbers


def compare(options: argparse.Namespace) -> None:
    rounds_by_kind: dict[str, list[dict[str, float]]] = {"default": [], "ours": []}
    with simulator_process(SimulatorConfig(latency_ms=options.latency_ms)) as simulator:
        for _ in range(options.rounds):
            for kind, rounds in rounds_by_kind.items():
                rounds.append(run_in_new_process(kind, simulator.url))
    best = {kind: max(rounds, key=lambda numbers: numbers["calls_per_s"]) for kind, rounds in rounds_by_kind.items()}
    names = {"default": "litellm.acompletion, defaults", "ours": "our gateway"}
    for kind, rounds in rounds_by_kind.items():
        rates = ", ".join(f"{numbers['calls_per_s']:,.0f}" for numbers in rounds)
        middle = statistics.median(numbers["processor_ms"] for numbers in rounds)
        print(f"{names[kind]:31} {rates} calls/s; {middle:.2f} ms of processor a call")
    ratio = best["ours"]["calls_per_s"] / best["default"]["calls_per_s"]
    print(f"best of {options.rounds} rounds: {ratio:.2f} x the default, at {options.in_flight} in flight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=6000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=50)
    parser.add_argument("--image-kb", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--who", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.who:
        run_round(options.who, options.url, options)
    else:
        compare(options)


if __name__ == "__main__":
    main()
