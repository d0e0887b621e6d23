"""Folders for real servers, which are killed at the end of their test."""

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
# Prints `in` when it uses the server, and leaves when its input ends.
HOLD = USE + "h = e.running(); h.__enter__(); print('in', flush=True); sys.stdin.read(); h.__exit__(None, None, None)"


def find_fastest_disk() -> str:
    """Return a memory folder if it is large enough and executable: a cluster has a thousand files, all synced."""
    memory = Path("/dev/shm")  # noqa: S108
    if not memory.is_dir() or os.statvfs(memory).f_flag & os.ST_NOEXEC or shutil.disk_usage(memory).free < 2**30:
        return "/tmp"  # noqa: S108
    return str(memory)


@contextmanager
def open_folder() -> Iterator[Path]:
    """Create a folder that any user can enter. The server of root runs as another user, who cannot enter pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="embedded-", dir=find_fastest_disk()))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        _kill_servers_and_delete(folder)


def _kill_servers_and_delete(folder: Path) -> None:
    while servers := find_servers(folder):
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
def stopped_cluster() -> Iterator[Path]:
    """A data folder with a stopped cluster, to copy from."""
    with open_folder() as folder:
        Embedded(folder / "postgres").start()
        Embedded(folder / "postgres").stop()
        yield folder / "postgres"


@pytest.fixture
def fresh(place: Path) -> Embedded:
    """A server that was never started."""
    return Embedded(place / "postgres")


@pytest.fixture
def embedded(fresh: Embedded, stopped_cluster: Path) -> Embedded:
    """A server that was started before and stopped."""
    subprocess.run(["/bin/cp", "-a", stopped_cluster, fresh.data_dir], check=True)
    fresh.log.unlink()
    return fresh


Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def spawn(place: Path) -> Iterator[Spawn]:
    """Return a function that runs Python code in its own process group, with the data folder as its argument."""
    processes: list[subprocess.Popen[str]] = []

    def start(code: str, data_dir: Path, **options: Any) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", code, str(data_dir)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes, **options))
        return processes[-1]

    yield start
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its forked children too
        process.communicate()


@pytest.fixture
def hold(spawn: Spawn) -> Callable[[Embedded], "subprocess.Popen[str]"]:
    """Return a function that starts a process and waits until it uses the server."""

    def start(embedded: Embedded) -> "subprocess.Popen[str]":
        holder = spawn(HOLD, embedded.data_dir)
        assert read_line(holder) == "in"
        return holder

    return start


def read_line(process: "subprocess.Popen[str]") -> str:
    """Return the next line that the process prints, without the line end. Fail after three minutes."""
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], 180)
    assert ready, "printed nothing"
    return process.stdout.readline().rstrip("\n")


def wait_for(condition: Callable[[], object], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def find_servers(folder: Path) -> list[int]:
    """Return the ids of server processes whose working directory, the cluster, is below the folder."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(folder):
                pids.append(int(process.name))
        except OSError:  # It ended, or belongs to another user.
            continue
    return pids


def read_server_pid(embedded: Embedded) -> int:
    return int((embedded.data_dir / "data" / "postmaster.pid").read_text().split()[0])


def is_gone(embedded: Embedded) -> bool:
    return not find_servers(embedded.data_dir) and not embedded.socket_dir.exists()


def query(embedded: Embedded, sql: str) -> Any:
    """Return the single value of a statement, or None if it returns no rows."""
    import psycopg

    with psycopg.connect(**embedded.connection(), autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchone()[0] if cursor.description else None
