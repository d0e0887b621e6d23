"""Several processes that use one embedded server: it runs until the last one leaves."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from evalsite.lib.ops.postgres import Embedded
from tests.system.postgres.conftest import HOLD, USE, Spawn, is_gone, query, read_line, read_server_pid, wait_for

pytestmark = pytest.mark.processes

Hold = Callable[[Embedded], "subprocess.Popen[str]"]


def leave_server(holder: "subprocess.Popen[str]") -> None:
    _, errors = holder.communicate(timeout=300)
    assert (holder.returncode, errors) == (0, "")


def test_a_stop_leaves_no_process_and_no_socket(embedded: Embedded) -> None:
    embedded.start()
    assert not is_gone(embedded)
    embedded.stop()
    assert is_gone(embedded)


def test_stopping_a_stopped_server_is_no_error(embedded: Embedded) -> None:
    embedded.stop()
    assert is_gone(embedded)


def test_the_last_user_to_leave_stops_the_server(embedded: Embedded, hold: Hold) -> None:
    first, second = hold(embedded), hold(embedded)
    pid = read_server_pid(embedded)
    leave_server(first)
    assert query(embedded, "SELECT 1") == 1
    assert read_server_pid(embedded) == pid
    leave_server(second)
    assert is_gone(embedded)


def test_a_nested_block_keeps_the_server_running(embedded: Embedded) -> None:
    with embedded.running():
        with Embedded(embedded.data_dir).running():
            pass
        assert query(embedded, "SELECT 1") == 1
    assert is_gone(embedded)


def test_an_error_within_the_block_stops_the_server_too(embedded: Embedded) -> None:
    with pytest.raises(ZeroDivisionError), embedded.running():
        _ = 1 / 0
    assert is_gone(embedded)


def test_a_killed_user_does_not_keep_the_server_running(embedded: Embedded, hold: Hold) -> None:
    killed, next_user = hold(embedded), hold(embedded)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert query(embedded, "SELECT 1") == 1
    leave_server(next_user)
    assert is_gone(embedded)


def test_the_next_user_takes_over_the_server_of_a_killed_user(embedded: Embedded, hold: Hold) -> None:
    killed = hold(embedded)
    pid = read_server_pid(embedded)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    with embedded.running():
        assert read_server_pid(embedded) == pid
    assert is_gone(embedded)


def test_a_forked_child_that_unwinds_the_block_does_not_stop_the_server(embedded: Embedded, spawn: Spawn) -> None:
    fork = "child = os.fork(); sys.exit(0) if child == 0 else os.waitpid(child, 0)"
    look = "import psycopg; psycopg.connect(**e.connection()).execute('SELECT 1'); print('still there')"
    parent = spawn(f"{USE}\nwith e.running():\n    {fork}\n    {look}", embedded.data_dir)
    assert parent.communicate(timeout=300) == ("still there\n", "")
    assert is_gone(embedded)


def test_an_orphaned_child_process_does_not_block_the_next_user(embedded: Embedded, spawn: Spawn, hold: Hold) -> None:
    fork = "os.fork() or (print(os.getpid(), flush=True), os.close(1), os.close(2), sys.stdin.read(), os._exit(0))"
    parent = spawn(f"{USE}\nwith e.running():\n    {fork}", embedded.data_dir)
    orphan = int(read_line(parent))
    assert parent.wait(timeout=300) == 0
    os.kill(orphan, 0)
    leave_server(hold(embedded))
    assert is_gone(embedded)


def test_the_next_start_restarts_a_server_that_died_in_use(embedded: Embedded, hold: Hold) -> None:
    holder = hold(embedded)
    os.kill(read_server_pid(embedded), signal.SIGKILL)
    embedded.start()
    assert query(embedded, "SELECT 1") == 1
    leave_server(holder)
    assert is_gone(embedded)


def is_waiting_for_lock(process: "subprocess.Popen[str]") -> bool:
    waiting_lines = [line for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
    return any(f" {process.pid} " in line for line in waiting_lines)


def test_users_join_and_leave_only_after_a_pending_start_or_stop(embedded: Embedded, spawn: Spawn) -> None:
    with (embedded.data_dir / "gate.lock").open() as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        user = spawn(HOLD, embedded.data_dir)
        wait_for(lambda: is_waiting_for_lock(user))
    assert read_line(user) == "in"
    assert user.stdin
    with (embedded.data_dir / "gate.lock").open() as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        user.stdin.close()
        user.stdin = None
        wait_for(lambda: is_waiting_for_lock(user))
        assert query(embedded, "SELECT 1") == 1
    assert user.wait(timeout=300) == 0
    assert is_gone(embedded)


def test_concurrent_users_always_find_the_server_running(embedded: Embedded, spawn: Spawn) -> None:
    embedded.start()
    turn = "with e.running(): psycopg.connect(**e.connection()).execute('SELECT 1')"
    code = f"{USE}\nimport psycopg\nfor _ in range(8):\n    {turn}\nprint('fine')"
    users = [spawn(code, embedded.data_dir) for _ in range(4)]
    assert [user.communicate(timeout=300) for user in users] == [("fine\n", "")] * 4
    wait_for(lambda: is_gone(embedded))
