"""The database's disk is full for a while: workers report it, wait and resume. No result is lost, no call repeated."""

import io
import os
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest
from django.core.management import call_command

from evalsite.lib.ops.postgres import Embedded
from runs_app.models import Run
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests.factories.engine import make_launched_run
from tests.prepared_database import copy_folder
from tests.system.faults.conftest import use_database_of
from tests.system.faults.test_database_outage import TRIALS, assert_each_trial_is_done_once, kill_server
from tests.system.postgres.conftest import ROOT, open_folder
from tests.system.processes.workers import IN_FLIGHT, drain_process, wait_until

DISK_MB = 192
MOUNT, UNMOUNT = shutil.which("mount"), shutil.which("umount")

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


@contextmanager
def mount_small_disk(folder):
    """Mount a small disk below the folder. Skip the test if that is impossible."""
    disk = folder / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or not MOUNT:
        pytest.skip("only root mounts a small disk")
    options = f"size={DISK_MB}m,mode=755"
    result = subprocess.run([MOUNT, "-t", "tmpfs", "-o", options, "tmpfs", disk], capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"no small disk can be mounted here: {result.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run([UNMOUNT, "--lazy", disk], check=True)


@pytest.fixture
def server_on_small_disk(prepared):
    """A running server on a small disk, and the disk."""
    with open_folder() as folder, mount_small_disk(folder) as disk:
        embedded = Embedded(copy_folder(prepared / "postgres", disk / "postgres"))
        embedded.start()
        try:
            with use_database_of(embedded):
                yield embedded, disk
        finally:
            kill_server(embedded)
            shutil.rmtree(embedded.socket_dir)


def fill_disk(disk):
    """Fill the disk to the last byte. Return the file to delete."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 4096):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


def wait_for_output(process, words, seconds=90):
    """Wait until the worker prints these words. Return its output."""
    output, deadline = "", time.monotonic() + seconds
    while words not in output:
        ready, _, _ = select.select([process.stdout], [], [], deadline - time.monotonic())
        assert ready, f"it did not say {words!r}: {output}"
        output += os.read(process.stdout.fileno(), 65_536).decode()
    return output


def run_status():
    output = io.StringIO()
    call_command("status", "faulty", stdout=output)
    return output.getvalue()


def assert_explained(line, embedded):
    """Check that a command on the full disk ends with a sentence and not with a traceback."""
    database = f"postgresql://evalsite@/evalsite?host={embedded.socket_dir}"
    process = subprocess.run(
        [sys.executable, "manage.py", *line.split()],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": database, "EVALSITE_SECRET_KEY": "x" * 40},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1, process.stderr
    assert "is full" in process.stderr
    assert "Free space" in process.stderr
    assert "Traceback" not in process.stderr


def test_workers_wait_for_disk_space_report_it_and_resume(server_on_small_disk, client):
    embedded, disk = server_on_small_disk
    with simulator_process(SimulatorConfig(latency_ms=2000)) as provider:  # The disk must be full before the run ends.
        make_launched_run(provider.url)
        with drain_process() as worker:
            wait_until(lambda: Run.objects.get().n_done >= IN_FLIGHT)
            ballast = fill_disk(disk)
            wait_for_output(worker, "the database is out of resources: ")
            assert worker.poll() is None
            requests = provider.counters()["requests"]
            assert requests < TRIALS, "it was over before the disk was full"
            wait_for_output(worker, "the database")  # Printed again: the worker waits and makes no calls.
            wait_until(lambda: client.get("/healthz?workers=1").status_code == 503)
            assert client.get("/healthz?workers=1").json()["workers"] == "blocked"
            assert client.get("/healthz").status_code == 200
            assert "waiting: A worker cannot record results: the database is out of resources" in run_status()
            assert_explained(f"export faulty --table trials --out {disk}/trials.csv", embedded)
            assert provider.counters()["requests"] <= requests + IN_FLIGHT
            provider.set_faults(latency_ms=50)
            ballast.unlink()
            embedded.start()  # A full disk may have ended the server.
            wait_until(lambda: client.get("/healthz?workers=1").status_code == 200)
            assert worker.wait(timeout=300) == 0
        assert_each_trial_is_done_once(provider)
