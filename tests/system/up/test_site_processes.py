"""`manage.py up`, with real processes."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from evalsite.lib.ops.postgres import Embedded
from tests.prepared_database import build_environment
from tests.system.postgres.conftest import ROOT, read_server_pid
from tests.system.up.conftest import Site, find_processes, free_port, list_children, wait_until

pytestmark = pytest.mark.processes


def find_idle_worker(cluster: int) -> int | None:
    """Return the id of the worker that waits in the pipe of the queue and blocks the others, or None.

    The sentinel starts the worker of the drain, the spare worker, the monitor and the pusher, in this order.
    """
    for sentinel in list_children(cluster):
        for pid in sorted(list_children(sentinel))[:2]:
            with suppress(FileNotFoundError):  # It ended meanwhile.
                if "pipe_read" in Path(f"/proc/{pid}/wchan").read_text():
                    return pid
    return None


def are_workers_ready(site: Site) -> bool:
    cluster = site.child("qcluster")
    if not cluster or [len(list_children(sentinel)) for sentinel in list_children(cluster)] != [4]:
        return False
    return find_idle_worker(cluster) is not None


def test_killed_processes_are_replaced_and_work_again(lasting_site: Site) -> None:
    site = lasting_site
    assert b"<form" in site.get("/accounts/login/")

    wait_until(lambda: are_workers_ready(site))
    cluster = site.child("qcluster")
    orphans = list_children(list_children(cluster)[0])
    os.kill(cluster, signal.SIGKILL)
    wait_until(lambda: site.child("qcluster") not in (None, cluster))
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in orphans))
    task = site.enqueue()
    wait_until(lambda: site.has_done(task))

    web = site.child("gunicorn")
    os.kill(web, signal.SIGKILL)
    wait_until(lambda: site.is_served() and site.child("gunicorn") not in (None, web))
    assert "queue was ended by SIGKILL" in site.read_log()
    assert "web was ended by SIGKILL" in site.read_log()


@pytest.mark.skipif(not Path("/proc/self/wchan").exists(), reason="/proc does not tell what a process waits for")
def test_a_hanging_cluster_is_replaced_and_its_task_is_completed(lasting_site: Site) -> None:
    site = lasting_site
    wait_until(lambda: are_workers_ready(site))
    cluster = site.child("qcluster")
    idle_workers = []
    wait_until(lambda: idle_workers.append(find_idle_worker(cluster)) or idle_workers[-1])
    os.kill(idle_workers[-1], signal.SIGKILL)
    task = site.enqueue()
    wait_until(lambda: site.has_done(task))
    assert site.child("qcluster") != cluster
    assert "with a worker idle" in site.read_log()


def test_a_site_run_by_root_logs_a_warning(lasting_site: Site) -> None:
    assert ("the site runs as root" in lasting_site.read_log()) is (os.geteuid() == 0)


def test_a_client_that_keeps_its_connection_open_delays_no_other_client(lasting_site: Site) -> None:
    site = lasting_site
    site.get("/healthz")
    delays = [
        measure_delay_with_open_connections(site) for _ in range(3)
    ]  # One measurement may be slow on a busy machine.
    assert min(delays) < 1.5, "the web server waited for a client to close its connection"


def measure_delay_with_open_connections(site: Site) -> float:
    """Return the seconds until a page arrives while four clients with answers keep their connections open."""
    clients = []
    for _ in range(4):
        clients.append(http.client.HTTPConnection("127.0.0.1", site.port))
        clients[-1].request("GET", "/healthz", headers={"Connection": "close"})
        assert clients[-1].sock.recv(1)
    started_at = time.monotonic()
    site.get("/healthz")
    return time.monotonic() - started_at


def is_restarted(server: Embedded, killed_pid: int) -> bool:
    with suppress(FileNotFoundError, IndexError):  # A start deletes the file and writes it again.
        return read_server_pid(server) != killed_pid
    return False


def test_a_killed_embedded_database_is_restarted(lasting_site: Site) -> None:
    site = lasting_site
    server = Embedded(site.place / "data" / "postgres")
    killed_pid = read_server_pid(server)
    os.kill(killed_pid, signal.SIGKILL)
    wait_until(lambda: is_restarted(server, killed_pid) and site.is_served())
    assert site.child("gunicorn")


def test_a_stop_leaves_no_process_behind(site: Site, place: Path) -> None:
    wait_until(lambda: are_workers_ready(site))
    assert len(find_processes(place)) > 8
    assert site.stop() == 0
    wait_until(lambda: not find_processes(place))
    assert list((place / "data").glob("up-*")) == []
    assert "Traceback" not in site.read_log()


def test_a_second_signal_stops_immediately(site: Site, place: Path) -> None:
    wait_until(lambda: are_workers_ready(site))
    os.kill(site.child("gunicorn"), signal.SIGSTOP)  # It ignores a stop request.
    site.process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in site.read_log())
    assert site.stop(signal.SIGINT) == 0
    assert "did not stop in time" not in site.read_log(), "it was waited for after all"
    wait_until(lambda: not find_processes(place))


def test_children_and_database_end_when_the_supervisor_is_killed(site: Site, place: Path) -> None:
    wait_until(lambda: are_workers_ready(site))
    pids = list_children(site.process.pid)
    site.process.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids))
    wait_until(lambda: not find_processes(place))
    assert Embedded(place / "data" / "postgres").socket_dir.exists() is False


@pytest.mark.parametrize("command", ["up", "demo"])
def test_debug_mode_is_never_served_to_other_hosts(place: Path, command: str) -> None:
    line = [sys.executable, str(ROOT / "manage.py"), command, "--host=0.0.0.0", f"--port={free_port()}"]
    variables = build_environment(place) | {"EVALSITE_DEBUG": "1"}
    process = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=300)
    assert process.returncode == 2
    assert "--host 0.0.0.0: EVALSITE_DEBUG is on" in process.stderr
    assert "Unset EVALSITE_DEBUG" in process.stderr
    assert "Evalsite is at" not in process.stdout


def test_a_port_in_use_is_reported_in_one_line(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, str(ROOT / "manage.py"), "up", f"--port={port}"]
        process = subprocess.run(command, env=build_environment(place), capture_output=True, text=True, timeout=300)
    assert process.returncode == 2
    assert process.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}" in process.stderr
    assert "in use" in process.stderr
