"""A simulated provider in a child process, for tests, demos and benchmarks that are not asynchronous."""

import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from evalsite.lib.ops.environment import build_child_environment
from evalsite.lib.ops.installation import ROOT, build_module_command
from runs_app.simulator.config import SimulatorConfig

_LISTENING = "listening on "


@dataclass(frozen=True, slots=True)
class SimulatorProcess:
    """A running server. `url` is the base URL for clients, `pid` the process id."""

    url: str
    pid: int

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    @property
    def port(self) -> int:
        return int(self.root.rpartition(":")[2])

    def counters(self) -> dict[str, Any]:
        """Return the server's current counters."""
        return _fetch_json(urllib.request.Request(f"{self.root}/counters"))  # noqa: S310 - our own loopback server

    def reset(self) -> None:
        """Reset the counters, the recorded answers and the sequence of faults."""
        self._post("/counters/reset", {})

    def set_faults(self, **settings: object) -> dict[str, Any]:
        """Change `errors`, `error_rate`, `latency_ms`, `max_in_flight` and others at run time.

        Return the current values.
        """
        return self._post("/faults", settings)

    def _post(self, path: str, payload: Mapping[str, object]) -> dict[str, Any]:
        body = json.dumps(payload).encode()
        return _fetch_json(urllib.request.Request(f"{self.root}{path}", data=body))  # noqa: S310 - as above


def _fetch_json(request: urllib.request.Request) -> dict[str, Any]:
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - as above
        loaded: dict[str, Any] = json.load(response)
    return loaded


@contextmanager
def simulator_process(
    config: SimulatorConfig | None = None, *, environment: Mapping[str, str] | None = None, timeout_s: float = 60.0
) -> Iterator[SimulatorProcess]:
    """Run a server for the block. Raise RuntimeError with its output if it does not listen in time."""
    arguments = (config or SimulatorConfig()).build_arguments()
    process = subprocess.Popen(
        build_module_command("runs_app.simulator", *arguments),
        cwd=ROOT,
        env=build_child_environment(**(environment or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield SimulatorProcess(_read_url(process, timeout_s), process.pid)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _read_url(process: "subprocess.Popen[str]", timeout_s: float) -> str:
    """Return the URL from the line that the server prints when it listens."""
    watchdog = threading.Timer(timeout_s, process.kill)
    watchdog.start()
    output = []
    try:
        for line in process.stdout or ():
            if line.startswith(_LISTENING):
                return line.removeprefix(_LISTENING).strip()
            output.append(line)
    finally:
        watchdog.cancel()
    raise RuntimeError(f"the simulated provider did not start: {''.join(output).strip() or 'no output'}")
