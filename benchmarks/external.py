"""What the gateway adds to a call of another program: `python -m benchmarks.external [--calls 400] [--in-flight 1,8]`.

A whole site (`up`) passes calls on to the simulated provider. Each client sends one call directly, one through a
process that forwards it and no more, and one through the gateway, in turn and over connections that stay open. So all
see the same load of the machine. The process that forwards has the gateway's server and client: no gateway adds less.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from evalsite.lib.ops.event_loop import run_in_fast_loop

FILL = """
from decimal import Decimal
from tests import factories
from tests.factories.people import make_team
from tests.factories.tokens import make_token
endpoint = factories.make_endpoint("simulated", base_url="{url}", max_concurrency=256, adaptive=False)
model = factories.make_model("sim", endpoint=endpoint, input_price=Decimal(1), output_price=Decimal(2))
owner = make_team().owner
experiment = factories.make_experiment("agents", owner=owner, models=[model], max_usd=Decimal(100), max_concurrency=256)
print(make_token(owner, "run", experiment=experiment)[1])
"""
JSON = "application/json"
BODY = {"model": "sim", "messages": [{"role": "user", "content": "How many legs has a spider?"}], "max_tokens": 64}


class Client:
    """A connection that stays open."""

    def __init__(self, address: str, token: str) -> None:
        parts = urlsplit(address)
        self.path = f"{parts.path}/chat/completions"
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self.headers = {"Content-Type": JSON, "Authorization": f"Bearer {token}"}

    def time_call(self) -> float:
        began = time.perf_counter()
        self.connection.request("POST", self.path, json.dumps(BODY), self.headers)
        reply = self.connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {content[:300]!r}")
        return 1000 * (time.perf_counter() - began)


@contextmanager
def forwarding_process(provider: str) -> Iterator[str]:
    """Run a process that only forwards requests to the provider. Yield its address."""
    command = [sys.executable, "-m", "benchmarks.external", "--forward-to", provider]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


async def forward(provider: str) -> None:
    """Serve until a signal. Pass each request on with the client of the gateway, and its reply back."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def handle(request: web.BaseRequest) -> web.Response:
            body = await request.read()
            async with session.post(f"{provider}/chat/completions", data=body, headers={"Content-Type": JSON}) as reply:
                return web.Response(body=await reply.read(), status=reply.status, headers={"Content-Type": JSON})

        server = await asyncio.get_running_loop().create_server(web.Server(handle, access_log=None), "127.0.0.1", 0)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
        await server.serve_forever()


def measure(addresses: Mapping[str, str], token: str, calls: int, in_flight: int) -> dict[str, list[float]]:
    """Return the milliseconds of the calls to each address."""
    times: dict[str, list[float]] = {name: [] for name in addresses}

    def run() -> None:
        clients = {name: Client(address, token) for name, address in addresses.items()}
        for client in clients.values():
            for _ in range(5):
                client.time_call()
        for _ in range(calls // in_flight):
            for name, client in clients.items():
                times[name].append(client.time_call())

    threads = [threading.Thread(target=run) for _ in range(in_flight)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def describe(times: Mapping[str, list[float]], in_flight: int) -> Iterator[str]:
    """Yield a line for each way, with what it adds to the direct calls."""
    cuts = {name: statistics.quantiles(series, n=100) for name, series in times.items()}
    for name, own in cuts.items():
        median, p95 = own[49], own[94]
        line = f"{in_flight} in flight, {name:9} median {median:6.1f} ms, p95 {p95:6.1f} ms"
        added = f"; added {median - cuts['direct'][49]:5.1f} and {p95 - cuts['direct'][94]:5.1f} ms"
        yield line if name == "direct" else line + added


def main() -> None:
    from runs_app.simulator import SimulatorConfig, simulator_process
    from tests.system.postgres.conftest import open_folder
    from tests.system.up.conftest import Site, wait_until

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--in-flight", default="1,8")
    parser.add_argument("--latency-ms", type=float, default=20)
    parser.add_argument("--forward-to", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.forward_to:
        run_in_fast_loop(forward(options.forward_to))
        return
    config = SimulatorConfig(latency_ms=options.latency_ms)
    with (
        simulator_process(config) as provider,
        open_folder() as place,
        forwarding_process(provider.url) as forwarder,
    ):
        site = Site(place)
        wait_until(site.is_served)
        token = site.manage("shell", "--no-imports", "-c", FILL.format(url=provider.url)).strip()
        gateway = f"http://127.0.0.1:{site.port}/gateway/agents/v1"
        addresses = {"direct": provider.url, "forwarded": forwarder, "gateway": gateway}
        for in_flight in map(int, options.in_flight.split(",")):
            print(*describe(measure(addresses, token, options.calls, in_flight), in_flight), sep="\n", flush=True)
        print(f"load {os.getloadavg()[0]:.1f}")
        site.manage("reconcile")
        site.stop()


if __name__ == "__main__":
    main()
