"""What the gateway adds to a call of another program: `python -m benchmarks.external [--calls 400] [--in-flight 1,8]`.

A whole site (`up`) passes calls on to the simulated provider. Each client sends one call directly and one through the
gateway in turn, over connections that stay open, so that both see the same load of the machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import threading
import time
from urllib.parse import urlsplit

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
BODY = {"model": "sim", "messages": [{"role": "user", "content": "How many legs has a spider?"}], "max_tokens": 64}


class Client:
    """A connection that stays open."""

    def __init__(self, address: str, token: str) -> None:
        parts = urlsplit(address)
        self.path = f"{parts.path}/chat/completions"
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}

    def time_call(self) -> float:
        began = time.perf_counter()
        self.connection.request("POST", self.path, json.dumps(BODY), self.headers)
        reply = self.connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {content[:300]!r}")
        return 1000 * (time.perf_counter() - began)


def measure(direct: str, gateway: str, token: str, calls: int, in_flight: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of direct calls and of calls through the gateway."""
    times: tuple[list[float], list[float]] = [], []

    def run() -> None:
        clients = Client(direct, "none"), Client(gateway, token)
        for client in clients:
            for _ in range(5):
                client.time_call()
        for _ in range(calls // in_flight):
            for series, client in zip(times, clients, strict=True):
                series.append(client.time_call())

    threads = [threading.Thread(target=run) for _ in range(in_flight)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def main() -> None:
    from runs_app.simulator import SimulatorConfig, simulator_process
    from tests.system.postgres.conftest import open_folder
    from tests.system.up.conftest import Site, wait_until

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--in-flight", default="1,8")
    parser.add_argument("--latency-ms", type=float, default=20)
    options = parser.parse_args()
    with simulator_process(SimulatorConfig(latency_ms=options.latency_ms)) as provider, open_folder() as place:
        site = Site(place)
        wait_until(site.is_served)
        token = site.manage("shell", "--no-imports", "-c", FILL.format(url=provider.url)).strip()
        gateway = f"http://127.0.0.1:{site.port}/gateway/agents/v1"
        for in_flight in map(int, options.in_flight.split(",")):
            direct, passed = measure(provider.url, gateway, token, options.calls, in_flight)
            rows = {"direct": direct, "gateway": passed}
            for name, series in rows.items():
                cuts = statistics.quantiles(series, n=100)
                print(f"{in_flight} in flight, {name:8} median {cuts[49]:6.1f} ms, p95 {cuts[94]:6.1f} ms")
        print(f"load {os.getloadavg()[0]:.1f}")
        site.manage("reconcile")
        site.stop()


if __name__ == "__main__":
    main()
