"""`manage.py COMMAND | head`: a command ends quietly when its output is closed, and its changes are complete."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalsite.lib.ops.postgres import Embedded
from tests.prepared_database import copy_folder, environment
from tests.system.postgres.conftest import ROOT, open_folder, query

pytestmark = pytest.mark.processes

QUIET = 128 + signal.SIGPIPE
# In this order: each needs what those before it made.
WORK = [
    "dataset import samples/questions.jsonl --name questions --title Q --source shipped --licence CC0",
    "dataset approve questions@1 --reason checked",
    "endpoint set rehearsal --provider openai --base-url http://127.0.0.1:9/v1",
    "model set sim-small --endpoint rehearsal --model sim-small --input-price 1 --output-price 1 --price-source list",
    "experiment create samples/questions-pilot.yaml --user rita",
]
LOOKS = [
    "status",
    "model list",
    "export questions-pilot --table trials --format csv --out -",
    "snapshot questions-pilot --out -",
]


@pytest.fixture(scope="module")
def place(prepared: Path) -> Iterator[Path]:
    with open_folder() as folder:
        copy_folder(prepared, folder / "data")
        with Embedded(folder / "data" / "postgres").running():
            yield folder


def run(place: Path, line: str, **streams: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "manage.py"), *line.split()]
    return subprocess.run(command, cwd=ROOT, env=environment(place), text=True, timeout=60, **streams)


def run_unread(place: Path, line: str) -> "subprocess.CompletedProcess[str]":
    """The standard output is a pipe whose reader has left: every write to it fails."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return run(place, line, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)


@pytest.fixture(scope="module")
def worked(place: Path) -> dict[str, "subprocess.CompletedProcess[str]"]:
    code = "from django.contrib.auth.models import User; User.objects.create_superuser('rita')"
    subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", code], cwd=ROOT, env=environment(place), check=True
    )
    return {line: run_unread(place, line) for line in WORK}


@pytest.mark.parametrize("line", WORK)
def test_a_writing_command_ends_quietly_after_completing_its_work(worked, line: str) -> None:
    assert (worked[line].stderr, worked[line].returncode) == ("", QUIET)


def test_changes_of_commands_without_a_reader_are_stored(worked, place: Path) -> None:
    server = Embedded(place / "data" / "postgres")
    assert query(server, "SELECT status FROM datasets_app_dataset") == "approved"
    assert query(server, "SELECT count(*) FROM runs_app_experiment WHERE slug = 'questions-pilot'") == 1


@pytest.mark.parametrize("line", LOOKS)
def test_a_reading_command_ends_quietly(worked, place: Path, line: str) -> None:
    ended = run_unread(place, line)
    assert ("Traceback" in ended.stderr, "Broken" in ended.stderr, ended.returncode) == (False, False, QUIET)


def test_head_receives_its_line_and_no_error_is_written(worked, place: Path) -> None:
    shell = f'"{sys.executable}" manage.py experiment show questions-pilot 2>&1 | head -n 1'
    said = subprocess.run(["/bin/sh", "-c", shell], cwd=ROOT, env=environment(place), capture_output=True, text=True)
    assert said.stdout == "# draft, of rita\n"
    assert said.stderr == ""


def test_a_closed_error_stream_ends_a_command_quietly(place: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = run(place, "status nothing", stdout=subprocess.PIPE, stderr=writing)
    finally:
        os.close(writing)
    assert (ended.stdout, ended.returncode) == ("", QUIET)


def test_a_command_with_a_reader_ends_normally(worked, place: Path) -> None:
    assert run(place, "status", capture_output=True).returncode == 0
    refused = run(place, "status nothing", capture_output=True)
    assert (refused.stdout, refused.returncode) == ("", 2)
