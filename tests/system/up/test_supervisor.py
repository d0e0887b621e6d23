"""A supervisor and its child processes, which are small shell scripts."""

import io
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from evalsite.lib.ops import supervisor
from evalsite.lib.ops.supervisor import Child, StartFailed, Supervisor, keep_running
from tests.system.up.conftest import wait_until


@pytest.fixture(autouse=True)
def short_delays(monkeypatch):
    monkeypatch.setattr(supervisor, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(supervisor, "CHECK_S", 0.01)


def make_child(script: str, **options) -> Child:
    return Child("small", ["/bin/sh", "-c", script], grace_s=2, **options)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def stop_when(condition) -> None:
    """Send this process a SIGTERM, which stops the supervisor, when the condition holds."""

    def wait():
        wait_until(condition)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def test_a_child_that_exits_is_restarted(tmp_path):
    starts = tmp_path / "starts"
    stop_when(lambda: starts.exists() and starts.read_text().count("\n") >= 3)
    Supervisor([make_child(f"echo >> '{starts}'; [ $(wc -l < '{starts}') -ge 3 ] && sleep 60; exit 1")]).run()
    assert starts.read_text().count("\n") == 3


def test_repeated_start_failures_end_with_the_childs_name_and_exit_code():
    with pytest.raises(StartFailed, match="small ended with 3, 4 times in a row"):
        Supervisor([make_child("exit 3")]).run()


def test_forked_processes_end_with_their_child(tmp_path):
    forked = tmp_path / "forked"
    child = make_child(f"sleep 60 & echo $! > '{forked}.new'; mv '{forked}.new' '{forked}'; kill -9 $$")
    child.check(time.monotonic())
    wait_until(child.has_ended)
    orphan = int(forked.read_text())
    assert is_running(orphan)
    child.check(time.monotonic())
    wait_until(lambda: not is_running(orphan))


def test_a_child_that_ignores_the_stop_signal_is_killed_after_its_grace_period(tmp_path):
    ready = tmp_path / "ready"
    child = Child("deaf", ["/bin/sh", "-c", f"trap '' TERM; touch '{ready}'; while :; do sleep 0.1; done"], grace_s=0.3)
    stop_when(ready.exists)
    started_at = time.monotonic()
    Supervisor([child]).run()
    assert child.pid is None
    assert time.monotonic() - started_at < 30


def test_every_output_line_of_a_child_is_prefixed_with_its_name(monkeypatch):
    output = io.StringIO()
    monkeypatch.setattr("sys.stderr", output)
    with keep_running(make_child("echo first; echo second >&2; sleep 60")):
        wait_until(lambda: "second" in output.getvalue())
    assert output.getvalue() == "small | first\nsmall | second\n"


def test_a_child_is_replaced_on_request(tmp_path):
    pids = tmp_path / "pids"
    child = make_child(f"echo $$ >> '{pids}'; sleep 60")

    def count_starts():
        return pids.read_text().count("\n") if pids.exists() else 0

    def chore():
        """Request one replacement: a second request would end the next child before it writes its id."""
        if count_starts() == 0:
            return 0.05
        child.replace("is tired")
        return None

    stop_when(lambda: count_starts() == 2)
    Supervisor([child], [chore]).run()
    first_pid, second_pid = pids.read_text().split()
    assert first_pid != second_pid
    assert not any(is_running(int(pid)) for pid in (first_pid, second_pid))


def test_a_failed_chore_is_logged_and_repeated(caplog, tmp_path):
    calls = []

    def chore():
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("the first line\nthe second")

    caplog.set_level("WARNING", "evalsite.up")
    stop_when(lambda: len(calls) == 2)
    Supervisor([make_child("sleep 60")], [chore]).run()
    assert [record.getMessage() for record in caplog.records] == ["RuntimeError: the first line"]


def test_a_block_ends_when_its_child_cannot_run():
    started_at = time.monotonic()
    with pytest.raises(StartFailed, match="ended with 7"), keep_running(make_child("exit 7")):
        time.sleep(120)
    assert time.monotonic() - started_at < 60


def test_a_keyboard_interrupt_in_the_block_is_reraised():
    child = make_child("sleep 60")

    def run_interrupted_block():
        with keep_running(child):
            wait_until(lambda: child.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_interrupted_block()
    assert child.pid is None


def test_a_child_waits_until_it_may_start():
    allowed = []
    child = make_child("sleep 60", may_start=lambda: bool(allowed))
    assert not child.check(time.monotonic())
    assert child.pid is None
    allowed.append(True)
    assert child.check(time.monotonic())
    assert child.pid
    child.end()
