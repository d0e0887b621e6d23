"""Recovery of the embedded server after kills, recycled process ids and interrupted starts."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalsite.lib.ops import postgres
from evalsite.lib.ops.postgres import Embedded
from evalsite.lib.ops.postgres_programs import PostgresError
from tests.system.postgres.conftest import USE, Spawn, find_servers, is_gone, query, read_server_pid, wait_for

pytestmark = pytest.mark.processes


def kill_server(embedded: Embedded) -> None:
    os.kill(read_server_pid(embedded), signal.SIGKILL)


@pytest.fixture
def other_process(embedded: Embedded) -> Iterator["subprocess.Popen[bytes]"]:
    """A live process of the user of the server. PostgreSQL treats its process id as that of a running server."""
    embedded.start()
    with subprocess.Popen(["/bin/sleep", "300"], cwd="/", **embedded._programs.identity) as process:
        yield process
        process.kill()


def test_a_killed_server_restarts_with_all_committed_rows(embedded: Embedded) -> None:
    embedded.start()
    query(embedded, "CREATE TABLE kept AS SELECT generate_series(1, 1000)")
    kill_server(embedded)
    embedded.start()
    assert query(embedded, "SELECT count(*) FROM kept") == 1000


def test_a_stop_succeeds_after_the_server_was_killed(embedded: Embedded) -> None:
    embedded.start()
    kill_server(embedded)
    embedded.stop()
    assert is_gone(embedded)


def test_a_recycled_process_id_is_not_mistaken_for_the_server(
    embedded: Embedded, other_process: "subprocess.Popen[bytes]"
) -> None:
    killed_pid = read_server_pid(embedded)
    kill_server(embedded)
    for path in (embedded.data_dir / "data" / "postmaster.pid", embedded.socket_dir / ".s.PGSQL.5432.lock"):
        path.write_text(path.read_text().replace(str(killed_pid), str(other_process.pid), 1))
    wait_for(lambda: not find_servers(embedded.data_dir))
    embedded.start()
    assert query(embedded, "SELECT 1") == 1
    assert read_server_pid(embedded) != other_process.pid
    assert other_process.poll() is None


def test_a_stop_never_signals_a_recycled_process_id(
    embedded: Embedded, other_process: "subprocess.Popen[bytes]"
) -> None:
    pid_file = embedded.data_dir / "data" / "postmaster.pid"
    forged_pid_file = pid_file.read_text().replace(str(read_server_pid(embedded)), str(other_process.pid), 1)
    kill_server(embedded)
    pid_file.write_text(forged_pid_file)
    wait_for(lambda: not find_servers(embedded.data_dir))
    embedded.stop()
    assert other_process.poll() is None
    assert is_gone(embedded)


def test_a_start_resumes_after_a_killed_start(embedded: Embedded, spawn: Spawn) -> None:
    embedded.start()
    embedded.stop()
    starter = spawn(USE + "e.start()", embedded.data_dir)
    wait_for(lambda: (embedded.data_dir / "data" / "postmaster.pid").exists())
    starter.kill()
    embedded.start()
    assert query(embedded, "SELECT 1") == 1


def test_an_unreachable_server_is_not_stopped_and_is_reported(
    embedded: Embedded, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.start()
    pid = read_server_pid(embedded)
    monkeypatch.setattr(postgres, "MAX_SILENCE_S", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(place))
        elsewhere = Embedded(embedded.data_dir)
    assert elsewhere.socket_dir != embedded.socket_dir
    with pytest.raises(PostgresError, match=rf"process {pid} .*socket in {embedded.socket_dir}.*TMPDIR"):
        elsewhere.start()
    assert read_server_pid(embedded) == pid
    assert query(embedded, "SELECT 1") == 1
