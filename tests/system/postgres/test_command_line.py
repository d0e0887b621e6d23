"""`manage.py` keeps the embedded server running during a command."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evalsite.command_line import needs_database
from evalsite.lib.ops.postgres import Embedded
from tests.system.postgres.conftest import ROOT, is_gone, query, read_line


def start_command(place: Path, *arguments: str) -> "subprocess.Popen[str]":
    environment = {key: value for key, value in os.environ.items() if key != "DATABASE_URL"}
    environment |= {"EVALSITE_DATA_DIR": str(place), "EVALSITE_DEBUG": "1"}
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, preexec_fn=reset_signals, **pipes)


def reset_signals() -> None:
    """Restore the default signal handlers of a terminal. Background processes inherit two ignored signals."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize(
    "line", ["", "help", "migrate --help", "--version", "simulate_provider", "makemigrations --dry-run"]
)
def test_a_command_without_rows_needs_no_database(line: str) -> None:
    assert not needs_database(line.split())


@pytest.mark.parametrize("line", ["migrate", "up --port 8001", "drain", "makemigrations", "demo --no-serve"])
def test_any_other_command_needs_the_database(line: str) -> None:
    assert needs_database(line.split())


@pytest.mark.processes
def test_a_command_reaches_the_database_and_stops_it_at_its_end(place: Path, embedded: Embedded) -> None:
    code = "from django.db import connection as c; c.ensure_connection(); print(c.settings_dict['HOST'])"
    command = start_command(place, "shell", "--no-imports", "-c", code)
    output, _ = command.communicate(timeout=300)
    assert (command.returncode, output) == (0, f"{embedded.socket_dir}\n")
    assert is_gone(embedded)


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_ended_by_a_signal_stops_the_database(
    place: Path, embedded: Embedded, number: signal.Signals
) -> None:
    command = start_command(
        place, "shell", "--no-imports", "-c", "print('on', flush=True); import time; time.sleep(60)"
    )
    assert read_line(command) == "on"
    assert query(embedded, "SELECT 1") == 1
    command.send_signal(number)
    command.communicate(timeout=300)
    assert abs(command.returncode) % 128 == number
    assert is_gone(embedded)


@pytest.mark.processes
def test_a_failed_database_start_is_reported_in_one_line(place: Path) -> None:
    (place / "postgres").write_text("a file, where a folder should be")
    command = start_command(place, "migrate")
    _, errors = command.communicate(timeout=300)
    assert command.returncode == 1
    assert errors.count("\n") == 1
    assert "EVALSITE_DATA_DIR" in errors
