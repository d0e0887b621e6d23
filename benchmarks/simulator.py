"""The rate of chat completions that the simulated provider answers, to a bare aiohttp client.

    python -m benchmarks.simulator [--requests 20000] [--in-flight 64] [--image-kb 80]

The server runs in a separate process, so server and client take a core each.
"""

import argparse
import asyncio
import base64
import json
import os
import resource
import time
from pathlib import Path

import aiohttp

from runs_app.simulator import SimulatorConfig, simulator_process


def build_bodies(count: int, image_kb: int) -> list[bytes]:
    """Return requests for a rating that differ by their salt, with an image if `image_kb` is above 0."""
    image = base64.b64encode(os.urandom(image_kb * 1024)).decode()
    parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}] if image_kb else []
    requests = []
    for number in range(count):
        text = f'Rate the valence of this from 1 to 7. Answer with JSON alone: {{"rating": N}}.\n\n[{number:010x}]'
        messages = [{"role": "user", "content": [{"type": "text", "text": text}, *parts]}]
        requests.append(json.dumps({"model": "sim/a", "messages": messages, "temperature": 1.0}).encode())
    return requests


async def send_requests(url: str, requests: list[bytes], in_flight: int) -> float:
    """Post every request, `in_flight` at a time, and return the seconds.

    Raise AssertionError for any status but 200.
    """
    waiting = iter(requests)
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def ask() -> None:
            for body in waiting:
                headers = {"Content-Type": "application/json"}
                async with session.post(f"{url}/chat/completions", data=body, headers=headers) as response:
                    assert response.status == 200, await response.text()
                    await response.read()

        start = time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(in_flight)))
        return time.perf_counter() - start


def read_processor_s(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--image-kb", type=int, default=0)
    options = parser.parse_args()
    requests = build_bodies(options.requests, options.image_kb)
    with simulator_process(SimulatorConfig()) as simulator:
        asyncio.run(send_requests(simulator.url, requests[:200], options.in_flight))
        before, client_before = read_processor_s(simulator.pid), resource.getrusage(resource.RUSAGE_SELF).ru_utime
        seconds = asyncio.run(send_requests(simulator.url, requests, options.in_flight))
        server_ms = (read_processor_s(simulator.pid) - before) / len(requests) * 1000
        client_ms = (resource.getrusage(resource.RUSAGE_SELF).ru_utime - client_before) / len(requests) * 1000
    print(
        f"{len(requests) / seconds:,.0f} requests/s at {options.in_flight} in flight; "
        f"processor time a request: server {server_ms:.3f} ms ({1000 / server_ms:,.0f}/s a core), "
        f"client {client_ms:.3f} ms"
    )


if __name__ == "__main__":
    main()
