"""Folders for real servers, and the certainty that none of them outlives its test."""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from evalsite.lib.ops.postgres import Embedded

ROOT = Path(__file__).resolve().parents[3]
USE = (
    "import os, sys; from pathlib import Path; from evalsite.lib.ops.postgres import Embedded; "
    "e = Embedded(Path(sys.argv[1])); "
)
# Says `in` once it holds the server and leaves when its input ends.
HOLD = USE + "h = e.running(); h.__enter__(); print('in', flush=True); sys.stdin.read(); h.__exit__(None, None, None)"


def quickest_disk() -> str:
    """Memory where there is enough of it and programs may run from it: a cluster is a thousand files, all synced."""
    memory = Path("/dev/shm")  # noqa: S108
    if not memory.is_dir() or os.statvfs(memory).f_flag & os.ST_NOEXEC or shutil.disk_usage(memory).free < 2**30:
        return "/tmp"  # noqa: S108
    return str(memory)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that any user can enter: pytest's own are closed, and root's server runs as someone else."""
    folder = Path(tempfile.mkdtemp(prefix="embedded-", dir=quickest_disk()))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        _end_all(folder)


def _end_all(folder: Path) -> None:
    while servers := servers_in(folder):
        for pid in servers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for data_dir in {lock.parent for lock in folder.rglob("gate.lock")}:
        shutil.rmtree(Embedded(data_dir).socket_dir, ignore_errors=True)
    shutil.rmtree(folder)


@pytest.fixture
def place() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def made_once() -> Iterator[Path]:
    """A data folder with a cluster that is not running, to copy from."""
    with open_folder() as folder:
        Embedded(folder / "postgres").start()
        Embedded(folder / "postgres").stop()
        yield folder / "postgres"


@pytest.fixture
def fresh(place: Path) -> Embedded:
    """A server that was never started."""
    return Embedded(place / "postgres")


@pytest.fixture
def embedded(fresh: Embedded, made_once: Path) -> Embedded:
    """A server that was started before and stopped."""
    subprocess.run(["/bin/cp", "-a", made_once, fresh.data_dir], check=True)
    fresh.log.unlink()
    return fresh


Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def spawn(place: Path) -> Iterator[Spawn]:
    """Start Python on a piece of code, with the data folder as its argument, in a process group of its own."""
    begun: list[subprocess.Popen[str]] = []

    def start(code: str, data_dir: Path, **options: Any) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", code, str(data_dir)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        begun.append(subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes, **options))
        return begun[-1]

    yield start
    for process in begun:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its forked children too
        process.communicate()


@pytest.fixture
def hold(spawn: Spawn) -> Callable[[Embedded], "subprocess.Popen[str]"]:
    """Start a process that holds the server, and return once it does."""

    def start(embedded: Embedded) -> "subprocess.Popen[str]":
        holder = spawn(HOLD, embedded.data_dir)
        assert line_of(holder) == "in"
        return holder

    return start


def line_of(process: "subprocess.Popen[str]") -> str:
    """The next line that the process prints, without its end; fails rather than waits for ever."""
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], 60)
    assert ready, "printed nothing"
    return process.stdout.readline().rstrip("\n")


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def servers_in(folder: Path) -> list[int]:
    """Processes of any server whose cluster is below the folder: a server works in its cluster."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
        except OSError:  # it has ended, or is not ours to look at
            continue
    return found


def postmaster(embedded: Embedded) -> int:
    return int((embedded.data_dir / "data" / "postmaster.pid").read_text().split()[0])


def leaves_nothing(embedded: Embedded) -> bool:
    return not servers_in(embedded.data_dir) and not embedded.socket_dir.exists()


def query(embedded: Embedded, sql: str) -> Any:
    """The one value that a statement returns, if it returns any."""
    import psycopg

    with psycopg.connect(**embedded.connection(), autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchone()[0] if cursor.description else None
