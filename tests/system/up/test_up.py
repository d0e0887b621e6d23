"""`manage.py up`, with real processes."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evalsite.lib.ops.postgres import Embedded
from tests.prepared_database import environment
from tests.system.postgres.conftest import ROOT, postmaster
from tests.system.up.conftest import Site, children, free_port, processes_of, until

pytestmark = pytest.mark.processes


def idle_worker(cluster: int) -> int | None:
    """The worker that waits in the queue's pipe, on which all the others wait."""
    (sentinel,) = children(cluster)
    for pid in sorted(children(sentinel))[:2]:  # one drain's and the spare; then come the monitor and the pusher
        if "pipe_read" in Path(f"/proc/{pid}/wchan").read_text():
            return pid
    return None


def workers_are_ready(site: Site) -> bool:
    cluster = site.child("qcluster")
    if not cluster or len(children(cluster)) != 1 or len(children(children(cluster)[0])) != 4:
        return False
    return idle_worker(cluster) is not None


def test_killed_processes_are_replaced_and_work_again(lasting_site: Site) -> None:
    site = lasting_site
    assert b"<form" in site.get("/accounts/login/")

    until(lambda: workers_are_ready(site))
    cluster = site.child("qcluster")
    orphans = children(children(cluster)[0])
    os.kill(cluster, signal.SIGKILL)
    until(lambda: site.child("qcluster") not in (None, cluster))
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in orphans))
    task = site.enqueue()
    until(lambda: site.has_done(task))

    web = site.child("gunicorn")
    os.kill(web, signal.SIGKILL)
    until(lambda: site.is_served() and site.child("gunicorn") not in (None, web))
    assert "queue was ended by SIGKILL" in site.said()
    assert "web was ended by SIGKILL" in site.said()


@pytest.mark.skipif(not Path("/proc/self/wchan").exists(), reason="/proc does not tell what a process waits for")
def test_a_hanging_cluster_is_replaced_and_its_task_is_completed(lasting_site: Site) -> None:
    site = lasting_site
    until(lambda: workers_are_ready(site))
    cluster = site.child("qcluster")
    os.kill(idle_worker(cluster), signal.SIGKILL)
    began = time.monotonic()
    task = site.enqueue()
    until(lambda: site.has_done(task), 60)
    assert site.child("qcluster") != cluster
    assert "with a worker idle" in site.said()
    assert time.monotonic() - began < 50


def test_a_site_run_by_root_logs_a_warning(lasting_site: Site) -> None:
    assert ("the site runs as root" in lasting_site.said()) is (os.geteuid() == 0)


def test_a_client_that_keeps_its_connection_open_delays_no_other_client(lasting_site: Site) -> None:
    site = lasting_site
    site.get("/healthz")
    delays = [delay_beside_lazy_clients(site) for _ in range(3)]  # One may be slow because the machine is.
    assert min(delays) < 1.5, "the web server waited for a client to close its connection"


def delay_beside_lazy_clients(site: Site) -> float:
    """How many seconds a page takes after four clients who got theirs, and keep the line open."""
    lazy = []
    for _ in range(4):
        lazy.append(http.client.HTTPConnection("127.0.0.1", site.port))
        lazy[-1].request("GET", "/healthz", headers={"Connection": "close"})
        assert lazy[-1].sock.recv(1)
    began = time.monotonic()
    site.get("/healthz")
    return time.monotonic() - began


def test_a_killed_embedded_database_is_restarted(lasting_site: Site) -> None:
    site = lasting_site
    server = Embedded(site.place / "data" / "postgres")
    killed = postmaster(server)
    os.kill(killed, signal.SIGKILL)
    until(lambda: site.is_served() and postmaster(server) != killed)
    assert site.child("gunicorn")


def test_a_stop_leaves_no_process_behind(site: Site, place: Path) -> None:
    until(lambda: workers_are_ready(site))
    assert len(processes_of(place)) > 8
    assert site.stop() == 0
    until(lambda: not processes_of(place))
    assert list((place / "data").glob("up-*")) == []
    assert "Traceback" not in site.said()


def test_a_second_signal_stops_immediately(site: Site, place: Path) -> None:
    until(lambda: workers_are_ready(site))
    os.kill(site.child("gunicorn"), signal.SIGSTOP)  # will not end when asked to
    site.process.send_signal(signal.SIGINT)
    until(lambda: "stopping" in site.said())
    assert site.stop(signal.SIGINT) == 0
    assert "did not stop in time" not in site.said(), "it was waited for after all"
    until(lambda: not processes_of(place))


def test_children_and_database_end_when_the_supervisor_is_killed(site: Site, place: Path) -> None:
    until(lambda: workers_are_ready(site))
    children_of_it = children(site.process.pid)
    site.process.kill()
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in children_of_it))
    until(lambda: not processes_of(place))
    assert Embedded(place / "data" / "postgres").socket_dir.exists() is False


@pytest.mark.parametrize("command", ["up", "demo"])
def test_debug_mode_is_never_served_to_other_hosts(place: Path, command: str) -> None:
    line = [sys.executable, str(ROOT / "manage.py"), command, "--host=0.0.0.0", f"--port={free_port()}"]
    debugging = environment(place) | {"EVALSITE_DEBUG": "1"}
    ended = subprocess.run(line, env=debugging, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "--host 0.0.0.0: EVALSITE_DEBUG is on" in ended.stderr
    assert "Unset EVALSITE_DEBUG" in ended.stderr
    assert "Evalsite is at" not in ended.stdout


def test_a_port_in_use_is_reported_in_one_line(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, str(ROOT / "manage.py"), "up", f"--port={port}"]
        ended = subprocess.run(command, env=environment(place), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "in use" in ended.stderr
