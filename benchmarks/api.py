"""Trials over HTTP into frames, and the status: `python -m benchmarks.api [TRIALS]`.

A whole site (`up`) serves the trials on loopback. The client reads them in a process of its own. The server's memory is
the sum over the web server and its export.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READ = """
import resource, time
from evalsite_client import Lab
start = time.perf_counter()
trials = Lab().experiment("stored").trials()
frame = trials.to_{kind}()
seconds = time.perf_counter() - start
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(f"{kind}: {{len(frame):,}} trials in {{seconds:.1f}} s, client {{memory:,}} MB", flush=True)
"""
STATUS = """
import time
from evalsite_client import Lab
for attempt in ("first", "again"):
    start = time.perf_counter()
    done = Lab().experiment("stored").status()["done"]
    print(f"status, {attempt}: {done:,} trials done in {time.perf_counter() - start:.2f} s", flush=True)
"""


def fill(rows: int) -> None:
    from benchmarks.stored import create_answers  # It sets Django up.
    from evalsite.lib.permissions import RESEARCHER
    from runs_app.models import Experiment
    from tests.factories.people import make_user
    from tests.factories.tokens import make_token

    create_answers(rows)
    owner = make_user("reader", RESEARCHER)
    Experiment.objects.update(sharing="group")
    print(make_token(owner)[1])


def measure_memory(pids: list[int]) -> int:
    """Return the memory of these processes and of their descendants that export, in MB."""
    pages = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            command = (process / "cmdline").read_bytes()
            if int(process.name) in pids or (b"export" in command and b"--format=parquet" in command):
                pages += int((process / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") // 2**20


def main(rows: int) -> None:
    from tests.prepared_database import build_environment
    from tests.system.postgres.conftest import open_folder
    from tests.system.up.conftest import Site, find_processes, wait_until

    with open_folder() as place:
        site = Site(place)
        wait_until(site.is_served)
        fill_it = [sys.executable, "-m", "benchmarks.api", str(rows), "fill"]
        environment = build_environment(place)
        token = subprocess.run(fill_it, env=environment, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        pids = [pid for pid, line in find_processes(place).items() if "gunicorn" in line or " web" in line]
        variables = environment | {
            "EVALSITE_URL": f"http://127.0.0.1:{site.port}",
            "EVALSITE_TOKEN": token.strip(),
            "PYTHONPATH": str(ROOT / "client"),
        }
        programs = [READ.format(kind=kind) for kind in ("arrow", "pandas", "polars")]
        for program in (*programs, STATUS):
            before, peak = measure_memory(pids), 0
            reader = subprocess.Popen([sys.executable, "-c", program], env=variables)
            while reader.poll() is None:
                peak = max(peak, measure_memory(pids))
                time.sleep(0.1)
            print(f"  server: {before} MB before, at most {peak} MB with the export, {measure_memory(pids)} MB after")
        site.stop()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    fill(count) if sys.argv[2:] == ["fill"] else main(count)
