"""A provider that is down for a while fails no trial, and the run goes on by itself."""

import os
import signal
import socket
import time

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app.models import Attempt, Endpoint, Run, Worker
from runs_app.monitoring.blockers import find_blockers
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests.factories.engine import make_launched_run
from tests.system.processes.workers import drain_process, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

FAILED_TESTS = 4  # After 1, 2 and 4 s: longer than three attempts with the default waits take.


def find_free_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def count_failed_tests():
    return Endpoint.objects.get().throttle.get("failed_tests", 0)


def load_run():
    return Run.objects.with_design().get()


def test_a_run_survives_a_killed_provider_and_a_worker_killed_meanwhile():
    port = find_free_port()
    config = SimulatorConfig(port=port, latency_ms=20)
    make_launched_run(f"http://127.0.0.1:{port}/v1", lease_s=5)
    with drain_process() as killed, drain_process() as survivor:
        with simulator_process(config) as provider:
            wait_until(lambda: Worker.objects.count() == 2 and load_run().n_done >= 60)
            os.kill(provider.pid, signal.SIGKILL)
        wait_until(lambda: count_failed_tests() >= 1 or load_run().n_failed)
        os.killpg(killed.pid, signal.SIGKILL)
        wait_until(lambda: count_failed_tests() >= FAILED_TESTS or load_run().n_failed)
        (blocker,) = find_blockers([load_run()])
        assert "has not answered" in blocker.text
        with simulator_process(config):
            restarted = time.monotonic()
            wait_until(lambda: load_run().n_done > 0 and not find_blockers([load_run()]), seconds=60)
            assert time.monotonic() - restarted < 60
            assert survivor.wait(timeout=300) == 0
    run = load_run()
    assert (run.status, run.n_done, run.n_failed, run.n_pending) == ("done", 300, 0, 0)
    assert Attempt.objects.filter(outcome="ok").count() == 300
    assert not Attempt.objects.filter(outcome="transient", error_class="unreachable").exists()
    assert find_differences() == []
