"""A complete site in its own folder, whose processes are killed at the end of a test."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from evalsite.lib.ops.postgres import Embedded
from tests.prepared_database import build_environment, copy_folder
from tests.system.postgres.conftest import ROOT, open_folder, query

MANAGE = (sys.executable, str(ROOT / "manage.py"))


def wait_until(condition: Callable[[], object], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def free_port() -> int:
    """Return a free port below the kernel's ephemeral ports, so that no connection takes it before it is bound.

    Each process of pytest-xdist has its own range of a thousand ports.
    """
    first = 20_000 + 1000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 12)
    while True:
        port = random.randrange(first, first + 1000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def find_processes(place: Path) -> dict[int, str]:
    """Return command lines by process id: processes whose environment or working directory names the folder."""
    command_lines = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_ours = os.fsencode(place) in (process / "environ").read_bytes()
            is_ours = is_ours or (process / "cwd").readlink().is_relative_to(place)
            if is_ours:
                command_lines[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return command_lines


class Site:
    """`manage.py up`, or `up` of another program, in a process of its own."""

    def __init__(self, place: Path, *options: str, program: Sequence[str] = MANAGE, **variables: str) -> None:
        self.place, self.port = place, free_port()
        self.log = place / "up.log"
        self.was_served = False
        command = [*program, "up", f"--port={self.port}", *options]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=place,
                env=build_environment(place) | variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def read_log(self) -> str:
        return self.log.read_text()

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as response:
            return response.read()

    def is_served(self) -> bool:
        """Return whether the site answers. After its first answer, connections must never be refused."""
        assert self.process.poll() is None, self.read_log()
        refused = False
        try:
            self.was_served |= json.loads(self.get("/healthz"))["status"] == "ok"
        except OSError as error:
            refused = isinstance(getattr(error, "reason", None), ConnectionRefusedError)
        else:
            return True
        assert not (self.was_served and refused)
        return False

    def child(self, word: str) -> int | None:
        """Return the id of the child process whose command line contains the word."""
        return next((pid for pid in list_children(self.process.pid) if word in read_command_line(pid)), None)

    def manage(self, *arguments: str) -> str:
        return subprocess.run(
            [*MANAGE, *arguments], env=build_environment(self.place), check=True, capture_output=True, text=True
        ).stdout

    def enqueue(self) -> str:
        """Queue a task of the site. Return its id."""
        code = "import django_q.tasks as q; print(q.async_task('runs_app.tasks.maintain'))"
        return self.manage("shell", "--no-imports", "-c", code).strip()

    def has_done(self, task: str) -> bool:
        """Return whether the cluster ran the task and stored its result."""
        done = f"SELECT count(*) FROM django_q_task WHERE id = '{task}' AND success"
        return query(Embedded(self.place / "data" / "postgres"), done) == 1

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 180) -> int:
        self.process.send_signal(number)
        return self.process.wait(seconds)


def list_children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def read_command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


@contextmanager
def spaced_folder(prepared: Path) -> Iterator[Path]:
    """Create a folder with a space in its path and a database in it."""
    with open_folder() as folder:
        spaced = folder / "my lab"
        spaced.mkdir()
        copy_folder(prepared, spaced / "data")
        try:
            yield spaced
        finally:
            for pid in find_processes(spaced):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def run_site(place: Path) -> Iterator[Site]:
    site = Site(place, "--workers=1")
    try:
        wait_until(site.is_served)
        yield site
    finally:
        site.process.kill()
        site.process.wait()


@pytest.fixture
def place(prepared: Path) -> Iterator[Path]:
    with spaced_folder(prepared) as folder:
        yield folder


@pytest.fixture(scope="module")
def lasting_site(prepared: Path) -> Iterator[Site]:
    """A site shared by the tests of a module that leave it running."""
    with spaced_folder(prepared) as folder, run_site(folder) as site:
        yield site


@pytest.fixture
def site(place: Path) -> Iterator[Site]:
    with run_site(place) as started:
        yield started
