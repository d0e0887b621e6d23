"""`make demo`, on a machine with only the code."""

import csv
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.prepared_database import environment
from tests.system.postgres.conftest import ROOT
from tests.system.up.conftest import free_port, processes_of, until

pytestmark = pytest.mark.processes


def demo(place: Path, *options: str, **more) -> "subprocess.Popen[str]":
    command = [sys.executable, str(ROOT / "manage.py"), "demo", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    return subprocess.Popen(command, env=environment(place) | more, **pipes)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_the_demo_runs_all_trials_once_and_shows_the_published_numbers(place: Path) -> None:
    first = demo(place, "--no-serve", OPENAI_API_KEY="sk-of-someone")
    said, _ = first.communicate(timeout=300)
    assert first.returncode == 0, said
    assert "640 done, 0 failed" in said
    assert "512 done, 0 failed" in said, "two judges of 256 answers"
    assert "does not use it" in said
    assert "counters and ledger agree with the rows" in said
    covered, known = map(int, re.search(r"(\d+) of (\d+) intervals contain the true accuracy", said).groups())
    assert known == 54
    assert covered >= 48
    correlations = [float(r) for r in re.findall(r"r = (\.\d\d)", said)]
    assert len(correlations) == 4
    assert min(correlations) > 0.5, "the simulated models know the norms"
    right = [float(share) for share in re.findall(r"exact_match +(\d+\.\d) %", said)]
    assert min(right[:2]) > max(right[2:]), "the larger model is right more often"

    for judge in ("strict-judge", "judge-large"):
        assert len(re.findall(rf"{judge}, correctness@1 +\d+\.\d %", said)) == 4

    made = place / "data" / "demo"
    trials = rows_of(made / "affect-pilot-trials.csv")
    assert len(trials) == 384
    assert {row["status"] for row in trials} == {"done"}
    assert all(float(row["cost_usd"]) > 0 for row in trials)
    assert "sk-of-someone" not in said
    assert "sk-of-someone" not in "".join(path.read_text(errors="replace") for path in made.iterdir())

    said_again = served_and_stopped(place)
    assert "none is paid for twice" in said_again
    results = said[said.index("\naffect-pilot\n") :]
    assert results in said_again
    assert rows_of(made / "affect-pilot-trials.csv") == trials
    until(lambda: not processes_of(place))


def served_and_stopped(place: Path) -> str:
    """All that a demonstration says until it serves the site. Who reads it can log in; then it is stopped."""
    port = free_port()
    running = demo(place, f"--port={port}")
    said = ""
    try:
        for line in running.stdout:
            said += line
            if line.startswith("└"):
                break
        assert f"http://127.0.0.1:{port}/" in said
        assert "models | listening on http://127.0.0.1:" in said
        assert can_log_in(port, re.search(r"password +(\S+)", said)[1])
        running.send_signal(signal.SIGINT)
        assert running.wait(90) == 0, running.stdout.read()
    finally:
        running.kill()
        running.communicate()
    return said


def can_log_in(port: int, password: str) -> bool:
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    address = f"http://127.0.0.1:{port}/accounts/login/"
    with browser.open(address, timeout=60) as page:
        token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', page.read().decode())[1]
    form = urllib.parse.urlencode({"username": "demo", "password": password, "csrfmiddlewaretoken": token})
    with browser.open(address, form.encode(), timeout=60) as page:
        return page.url == f"http://127.0.0.1:{port}/"
