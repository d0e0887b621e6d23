"""Our worker compared with other tools that send many requests to models, in one run, on one simulated provider.

    python -m benchmarks.peers [--trials 2000] [--in-flight 64] [--latency-ms 50] [--rounds 3] [--folder DIR]

It measures in turn: bare `litellm.acompletion` (with defaults, and tuned), our gateway alone, one worker, inspect_ai,
itemeval, promptfoo. The last three are installed into separate virtual environments and an npm prefix under a temporary
folder (`--folder` keeps it), never into this project's. A tool that cannot be installed, or fails, is reported and left
out. Each of these runs with few questions and with many. The difference counts, so that start-up costs nothing. Rates
are calls per second. Processor time includes child processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

FEW = 64
SCRIPTS = Path(__file__).resolve().parent / "peer_scripts"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another tool.

    `command` returns a command line from a folder, the number of questions, calls in flight and URL.
    """

    name: str
    install: Callable[[Path], list[list[str]]]
    command: Callable[[Path, int, int, str], list[str]]


def _install_with_pip(*packages: str) -> Callable[[Path], list[list[str]]]:
    return lambda folder: [
        [sys.executable, "-m", "venv", str(folder / "venv")],
        [str(folder / "venv/bin/pip"), "install", "-q", *packages],
    ]


def _run_script(name: str) -> Callable[[Path, int, int, str], list[str]]:
    """Return a command that runs one of `peer_scripts` with the tool's Python.

    The environment has the provider's URL.
    """

    def command(folder: Path, n: int, in_flight: int, url: str) -> list[str]:
        here = folder / str(n)
        here.mkdir(exist_ok=True)
        python = str(folder / "venv/bin/python")
        return ["env", f"SIM_BASE_URL={url}", python, str(SCRIPTS / name), str(n), str(in_flight), str(here)]

    return command


def _install_with_npm(folder: Path) -> list[list[str]]:
    return [["npm", "install", "--silent", "--prefix", str(folder / "npm"), "promptfoo"]]


def _build_promptfoo_command(folder: Path, n: int, in_flight: int, url: str) -> list[str]:
    provider = {"id": "openai:chat:sim-a", "config": {"apiBaseUrl": url, "apiKey": "none", "max_tokens": 64}}
    tests = [
        {"vars": {"a": str(at)}, "assert": [{"type": "icontains", "value": str(at + 1), "weight": 0}]}
        for at in range(n)
    ]
    config = folder / "questions.json"
    config.write_text(json.dumps({"prompts": ["What is {{a}} plus 1?"], "providers": [provider], "tests": tests}))
    options = ["--no-cache", "--no-table", "--no-progress-bar", "-o", str(folder / "answers.json")]
    return [str(folder / "npm/node_modules/.bin/promptfoo"), "eval", "-c", str(config), "-j", str(in_flight), *options]


PEERS = [
    Peer("inspect_ai", _install_with_pip("inspect-ai", "openai"), _run_script("inspect_questions.py")),
    Peer("itemeval", _install_with_pip("itemeval", "openai"), _run_script("itemeval_questions.py")),
    Peer("promptfoo", _install_with_npm, _build_promptfoo_command),
]


def install_peer(peer: Peer, folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    for command in peer.install(folder):
        try:
            process = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            print(f"  {peer.name} is left out: {error}")
            return False
        if process.returncode:
            print(f"  {peer.name} is left out, it cannot be installed: {process.stderr.strip()[-300:]}")
            return False
    return True


def measure_peer(peer: Peer, folder: Path, url: str, options: argparse.Namespace) -> dict[str, float]:
    """Return the rate and the processor time, without the first few questions."""
    few = _run(peer.command(folder, FEW, options.in_flight, url), folder)
    many = _run(peer.command(folder, options.trials, options.in_flight, url), folder)
    seconds, processor = (after - before for after, before in zip(many, few, strict=True))
    calls = options.trials - FEW
    return {"calls_per_s": calls / seconds, "processor_ms": 1000 * processor / calls}


def _run(command: list[str], folder: Path) -> tuple[float, float]:
    """Return seconds of wall time and of processor time. Raise Failed, with the last output, if the command fails."""
    quiet = {
        "PROMPTFOO_DISABLE_TELEMETRY": "1",
        "PROMPTFOO_DISABLE_UPDATE": "1",
        "PROMPTFOO_FAILED_TEST_EXIT_CODE": "0",
    }
    keys = {"OPENAI_API_KEY": "none", "SIM_API_KEY": "none"}
    environment = {**os.environ, **quiet, **keys, "PROMPTFOO_CONFIG_DIR": str(folder / "state")}
    start, before = time.perf_counter(), os.times()
    process = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    if process.returncode:
        raise PeerFailed((process.stderr or process.stdout).strip()[-1000:])
    after = os.times()
    processor_s = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - start, processor_s


class PeerFailed(Exception):
    """A failure of another tool, with its last lines of output."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="Where peers are installed; a temporary one unless named")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        compare(options, (options.folder or Path(temporary)).resolve())


def compare(options: argparse.Namespace, folder: Path) -> None:
    from benchmarks.drain import list_measurements, print_report
    from benchmarks.stored import temporary_database
    from runs_app.simulator import SimulatorConfig, simulator_process

    peers = [peer for peer in PEERS if install_peer(peer, folder / peer.name)]
    rows: dict[str, list[dict[str, float]]] = {}
    with temporary_database(), simulator_process(SimulatorConfig(latency_ms=options.latency_ms)) as provider:
        for _ in range(options.rounds):
            ours = list_measurements(provider.url, options)
            for name in (
                "litellm.acompletion, defaults",
                "litellm.acompletion, tuned",
                "our gateway alone",
                "one drain",
            ):
                rows.setdefault(name, []).append(ours[name]())
                print(f"  {name}: {rows[name][-1]['calls_per_s']:,.0f}/s", flush=True)
            for peer in [*peers]:
                try:
                    figures = measure_peer(peer, folder / peer.name, provider.url, options)
                except PeerFailed as failure:
                    print(f"  {peer.name} is left out, it failed: {failure}")
                    peers.remove(peer)
                    continue
                rows.setdefault(peer.name, []).append(figures)
                print(f"  {peer.name}: {figures['calls_per_s']:,.0f}/s", flush=True)
    print_report(rows, limit=options.in_flight / (options.latency_ms / 1000))


if __name__ == "__main__":
    main()
