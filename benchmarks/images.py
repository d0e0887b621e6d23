"""Calls with images against calls with text, through our gateway and by aiohttp alone, in one run.

    python -m benchmarks.images [--calls 2000] [--in-flight 64] [--latency-ms 50] [--image-kb 80] [--images 200]
        [--rounds 3]

The images are files that the image cache of a worker reads, more than one for each call in flight. The ways take turns,
each in a fresh process. It prints medians of calls per second and processor time, and by how much the memory of the
process grew during the last nine tenths of the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import statistics
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")


def store_images(folder: Path, number: int, size: int) -> list[str]:
    """Write files of random bytes where a worker looks for images. Return their hashes."""
    hashes = []
    for _ in range(number):
        data = os.urandom(size)
        sha256 = hashlib.sha256(data).hexdigest()
        path = folder / "assets" / sha256[:2] / f"{sha256}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        hashes.append(sha256)
    return hashes


def measure_way(caller: str, url: str, folder: str, hashes: list[str], calls: int, in_flight: int) -> dict[str, float]:
    import django

    django.setup()
    from django.conf import settings

    from benchmarks import gateway
    from runs_app.engine.requests import ImageCache

    settings.MEDIA_ROOT = folder
    images, memory = ImageCache(), []

    def get_image(number: int) -> str:
        if number == calls // 10:
            memory.append(read_memory_mb())
        return images.load(hashes[number % len(hashes)], "image/png") if hashes else ""

    makers: dict[str, Any] = {"our gateway": gateway.make_gateway_caller, "aiohttp alone": gateway.AiohttpCaller}
    call = makers[caller](url, get_image)
    numbers = asyncio.run(gateway.measure(call, calls, in_flight))
    return {**numbers, "grown_mb": read_memory_mb() - memory[0], "memory_mb": read_memory_mb()}


def read_memory_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=50)
    parser.add_argument("--image-kb", type=int, default=80)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from runs_app.simulator import SimulatorConfig, simulator_process

    rows: dict[tuple[str, str], list[dict[str, float]]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        simulator_process(SimulatorConfig(latency_ms=options.latency_ms)) as provider,
    ):
        hashes = store_images(Path(folder), options.images, options.image_kb * 1024)
        for _ in range(options.rounds):
            for caller in ("aiohttp alone", "our gateway"):
                for kind, chosen in (("text", []), ("image", hashes)):
                    with get_context("spawn").Pool(1) as pool:
                        arguments = (caller, provider.url, folder, chosen, options.calls, options.in_flight)
                        rows.setdefault((caller, kind), []).append(pool.apply(measure_way, arguments))
    print("| what | calls/s | processor ms a call | memory, MB | grown, MB |")
    print("| --- | --- | --- | --- | --- |")
    for (caller, kind), rounds in rows.items():
        rate, processor, memory, grown = (
            statistics.median(row[name] for row in rounds)
            for name in ("calls_per_s", "processor_ms", "memory_mb", "grown_mb")
        )
        print(f"| {caller}, {kind} | {rate:,.0f} | {processor:.2f} | {memory:,.0f} | {grown:,.1f} |")


if __name__ == "__main__":
    main()
