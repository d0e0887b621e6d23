"""`make demo` in a new checkout."""

import csv
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.prepared_database import build_environment
from tests.system.postgres.conftest import ROOT
from tests.system.up.conftest import find_processes, free_port, wait_until

pytestmark = pytest.mark.processes


def start_demo(place: Path, *options: str, **variables) -> "subprocess.Popen[str]":
    command = [sys.executable, str(ROOT / "manage.py"), "demo", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    return subprocess.Popen(command, env=build_environment(place) | variables, **pipes)


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_the_demo_runs_all_trials_once_and_shows_the_published_numbers(place: Path) -> None:
    process = start_demo(place, "--no-serve", OPENAI_API_KEY="sk-of-someone")
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    assert "704 done, 0 failed" in output
    assert "128 done, 0 failed" in output, "two waves of 64 answers"
    assert re.search(
        r"Scores changed significantly from .*before-update.* to .*after-update.*: Exact match, .* \d+\.\d % to", output
    )
    assert "512 done, 0 failed" in output, "two judges of 256 answers"
    assert "does not use it" in output
    assert "counters and ledger agree with the rows" in output
    covered, total = map(int, re.search(r"(\d+) of (\d+) intervals contain the true accuracy", output).groups())
    assert total == 54
    assert covered >= 48
    correlations = [float(r) for r in re.findall(r"r = (\.\d\d)", output)]
    assert len(correlations) == 4
    assert min(correlations) > 0.5, "the simulated models know the norms"
    accuracies = [float(share) for share in re.findall(r"Exact match  +(\d+\.\d) %", output)]
    assert min(accuracies[:2]) > max(accuracies[2:]), "the larger model is right more often"

    for judge in ("strict-judge", "judge-large"):
        assert len(re.findall(rf"Correctness \({judge}\) +\d+\.\d %", output)) == 4

    folder = place / "data" / "demo"
    trials = read_rows(folder / "affect-pilot-trials.csv")
    assert len(trials) == 384
    assert {row["status"] for row in trials} == {"done"}
    assert all(float(row["cost_usd"]) > 0 for row in trials)
    assert "sk-of-someone" not in output
    assert "sk-of-someone" not in "".join(path.read_text(errors="replace") for path in folder.iterdir())

    second_output = serve_and_stop(place)
    assert "none is paid for twice" in second_output
    results = output[output.index("\naffect-pilot\n") :]
    assert results in second_output
    assert read_rows(folder / "affect-pilot-trials.csv") == trials
    wait_until(lambda: not find_processes(place))


def serve_and_stop(place: Path) -> str:
    """Run the demonstration until it serves the site, sign in, and stop it. Return its output."""
    port = free_port()
    process = start_demo(place, f"--port={port}")
    output = ""
    try:
        for line in process.stdout:
            output += line
            if "\n└" in output and "models | listening" in output:  # The models may start after the site.
                break
        assert f"http://127.0.0.1:{port}/" in output
        assert "models | listening on http://127.0.0.1:" in output
        password = re.search(r"password +(\S+)", output)[1]
        assert can_log_in(port, password)
        code = re.search(rf"sign in at +http://127.0.0.1:{port}/welcome/#(\S+)", output)[1]
        assert can_log_in(port, code=code)
        join_demo(place, port, password)
        process.send_signal(signal.SIGINT)
        assert process.wait(180) == 0, process.stdout.read()
    finally:
        process.kill()
        process.communicate()
    return output


def join_demo(place: Path, port: int, password: str) -> None:
    """A second demonstration of the folder prints the address of the first, and changes nothing."""
    models = (place / "data" / "demo" / "models.json").read_text()
    process = start_demo(place, f"--port={free_port()}")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert f"http://127.0.0.1:{port}/ " in output
    assert password in output
    assert "It already runs; this command started nothing" in output
    assert (place / "data" / "demo" / "models.json").read_text() == models


def can_log_in(port: int, password: str = "", code: str = "") -> bool:
    """Return whether the password, or the code of a one-time link, leads to the home page."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    address = f"http://127.0.0.1:{port}/{'welcome/' if code else 'accounts/login/'}"
    with browser.open(address, timeout=60) as page:
        token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', page.read().decode())[1]
    fields = {"code": code} if code else {"username": "demo", "password": password}
    form = urllib.parse.urlencode(fields | {"csrfmiddlewaretoken": token})
    with browser.open(address, form.encode(), timeout=60) as page:
        return page.url == f"http://127.0.0.1:{port}/"
