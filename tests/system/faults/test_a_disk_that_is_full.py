"""The database's disk is full for a while: workers report it, wait and resume. No result is lost, no call repeated."""

import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager, suppress

import pytest

from evalsite.lib.ops.postgres import Embedded
from runs_app.models import Run
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests.factories.engine import make_launched_run
from tests.prepared_database import copy_folder
from tests.system.faults.conftest import served_by
from tests.system.faults.test_a_database_that_goes_away import TRIALS, assert_all_is_done_once, kill
from tests.system.postgres.conftest import open_folder
from tests.system.processes.workers import IN_FLIGHT, drain_process, wait_until

DISK_MB = 192
MOUNT, UNMOUNT = shutil.which("mount"), shutil.which("umount")

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


@contextmanager
def small_disk(folder):
    """A disk of its own below the folder. Skips where none can be made."""
    disk = folder / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or not MOUNT:
        pytest.skip("only root mounts a small disk")
    options = f"size={DISK_MB}m,mode=755"
    made = subprocess.run([MOUNT, "-t", "tmpfs", "-o", options, "tmpfs", disk], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no small disk can be mounted here: {made.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run([UNMOUNT, "--lazy", disk], check=True)


@pytest.fixture
def cramped(prepared):
    """A server on a small disk, in use; and that disk."""
    with open_folder() as folder, small_disk(folder) as disk:
        embedded = Embedded(copy_folder(prepared / "postgres", disk / "postgres"))
        embedded.start()
        try:
            with served_by(embedded):
                yield embedded, disk
        finally:
            kill(embedded)
            shutil.rmtree(embedded.socket_dir)


def fill(disk):
    """To the last byte."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 4096):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


def wait_for_words(process, words, seconds=90):
    """Until the worker has said them; what it said."""
    said, deadline = "", time.monotonic() + seconds
    while words not in said:
        ready, _, _ = select.select([process.stdout], [], [], deadline - time.monotonic())
        assert ready, f"it did not say {words!r}: {said}"
        said += os.read(process.stdout.fileno(), 65_536).decode()
    return said


def test_workers_wait_for_disk_space_and_resume(cramped):
    embedded, disk = cramped
    with simulator_process(SimulatorConfig(latency_ms=200)) as provider:
        make_launched_run(provider.url)
        with drain_process() as worker:
            wait_until(lambda: Run.objects.get().n_done >= IN_FLIGHT)
            provider.set_faults(latency_ms=2000)  # So that it is not over before the disk is full.
            ballast = fill(disk)
            wait_for_words(worker, "the database is out of resources: ")
            assert worker.poll() is None
            asked = provider.counters()["requests"]
            assert asked < TRIALS, "it was over before the disk was full"
            wait_for_words(worker, "the database")  # Once more: it waits, and asks nothing meanwhile.
            assert provider.counters()["requests"] <= asked + IN_FLIGHT
            provider.set_faults(latency_ms=50)
            ballast.unlink()
            embedded.start()  # Where it was so full that the server itself ended.
            assert worker.wait(timeout=120) == 0
        assert_all_is_done_once(provider)
