"""`manage.py COMMAND | head`: a command ends quietly when its output is closed, and its changes are complete."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalsite.lib.ops.postgres import Embedded
from tests.prepared_database import build_environment, copy_folder
from tests.system.postgres.conftest import ROOT, open_folder, query

pytestmark = pytest.mark.processes

QUIET = 128 + signal.SIGPIPE
# The order matters: each command needs the rows of the earlier ones.
WRITE_COMMANDS = [
    "dataset import samples/questions.jsonl --name questions --title Q --source shipped --licence CC0",
    "dataset approve questions@1 --reason checked",
    "endpoint set rehearsal --provider openai --base-url http://127.0.0.1:9/v1",
    "model set sim-small --endpoint rehearsal --model sim-small --input-price 1 --output-price 1 --price-source list",
    "experiment create samples/questions-pilot.yaml --user rita",
]
READ_COMMANDS = [
    "status",
    "model list",
    "export questions-pilot --table trials --format csv --out -",
    "snapshot questions-pilot --out -",
]


@pytest.fixture(scope="module")
def folder(prepared: Path) -> Iterator[Path]:
    with open_folder() as folder:
        copy_folder(prepared, folder / "data")
        with Embedded(folder / "data" / "postgres").running():
            yield folder


def run_command(
    folder: Path, line: str, *, buffered: bool = False, **streams: object
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "manage.py"), *line.split()]
    # Output without a buffer meets the closed pipe at once, before a command's messages about its experiment.
    environment = build_environment(folder) | {"PYTHONUNBUFFERED": "" if buffered else "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, text=True, timeout=300, **streams)


def run_without_reader(folder: Path, line: str, *, buffered: bool = False) -> "subprocess.CompletedProcess[str]":
    """Run a command whose standard output is a pipe without a reader, so that every write fails."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return run_command(folder, line, buffered=buffered, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)


@pytest.fixture(scope="module")
def finished_commands(folder: Path) -> dict[str, "subprocess.CompletedProcess[str]"]:
    code = "from django.contrib.auth.models import User; User.objects.create_superuser('rita')"
    subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", code],
        cwd=ROOT,
        env=build_environment(folder),
        check=True,
    )
    return {line: run_without_reader(folder, line) for line in WRITE_COMMANDS}


@pytest.mark.parametrize("line", WRITE_COMMANDS)
def test_a_writing_command_ends_quietly_after_completing_its_work(finished_commands, line: str) -> None:
    assert (finished_commands[line].stderr, finished_commands[line].returncode) == ("", QUIET)


def test_changes_of_commands_without_a_reader_are_stored(finished_commands, folder: Path) -> None:
    server = Embedded(folder / "data" / "postgres")
    assert query(server, "SELECT status FROM datasets_app_dataset") == "approved"
    assert query(server, "SELECT count(*) FROM runs_app_experiment WHERE slug = 'questions-pilot'") == 1


@pytest.mark.parametrize("buffered", [False, True], ids=["at once", "buffered"])
@pytest.mark.parametrize("line", READ_COMMANDS)
def test_a_reading_command_ends_quietly(finished_commands, folder: Path, line: str, buffered: bool) -> None:
    process = run_without_reader(folder, line, buffered=buffered)
    assert ("Traceback" in process.stderr, "Broken" in process.stderr, process.returncode) == (False, False, QUIET)


def test_head_receives_its_line_and_no_error_is_written(finished_commands, folder: Path) -> None:
    shell = f'"{sys.executable}" manage.py experiment show questions-pilot 2>&1 | head -n 1'
    process = subprocess.run(
        ["/bin/sh", "-c", shell], cwd=ROOT, env=build_environment(folder), capture_output=True, text=True
    )
    assert process.stdout == "# draft, of rita\n"
    assert process.stderr == ""


def test_head_receives_the_first_line_of_an_export(finished_commands, folder: Path) -> None:
    shell = f'"{sys.executable}" manage.py export questions-pilot --table items --format csv --out - | head -n 1'
    process = subprocess.run(
        ["/bin/bash", "-c", shell], cwd=ROOT, env=build_environment(folder), capture_output=True, text=True
    )
    assert process.stdout.startswith("experiment,dataset,")
    assert process.stdout.count("\n") == 1
    assert ("Traceback" in process.stderr, "Broken" in process.stderr) == (False, False)


def test_a_closed_error_stream_ends_a_command_quietly(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = run_command(folder, "status nothing", stdout=subprocess.PIPE, stderr=writing)
    finally:
        os.close(writing)
    assert (process.stdout, process.returncode) == ("", QUIET)


def test_a_command_with_a_reader_ends_normally(finished_commands, folder: Path) -> None:
    assert run_command(folder, "status", capture_output=True).returncode == 0
    process = run_command(folder, "status nothing", capture_output=True)
    assert (process.stdout, process.returncode) == ("", 2)
