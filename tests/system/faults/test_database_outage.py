"""PostgreSQL killed during a run, or connections cut: workers wait, resume, and repeat no call."""

import os
import signal
import time

import pytest
from django.db import connection

from grading_app.grading.consistency_check import find_differences
from runs_app.engine.leases import sweep_expired
from runs_app.models import Attempt, Run
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests.factories.engine import make_launched_run
from tests.system.postgres.conftest import find_servers
from tests.system.processes.workers import IN_FLIGHT, MAX_CLAIMS, count_busy_workers, drain_process, wait_until

TRIALS = 300
LEASE_S = 5

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def provider():
    """Calls are slow until the fault has happened, so that the run does not end before it, however late it comes."""
    with simulator_process(SimulatorConfig(latency_ms=2000)) as process:
        yield process


def wait_for_work(workers=2):
    """Wait until each worker has claims and some trials are done."""
    wait_until(lambda: count_busy_workers() == workers)
    wait_until(lambda: Run.objects.get().n_done >= 2 * IN_FLIGHT)


def kill_server(embedded):
    """Kill all processes of the server, as the kernel does without free memory."""
    connection.close()
    while servers := find_servers(embedded.data_dir):
        for pid in servers:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def assert_each_trial_is_done_once(provider):
    run = Run.objects.get()
    assert (run.status, run.n_done, run.n_failed) == ("done", TRIALS, 0)
    assert provider.counters()["requests"] == TRIALS
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"ok"}
    assert Attempt.objects.count() == TRIALS
    assert find_differences() == []


def test_a_killed_and_restarted_server_loses_no_result_and_repeats_no_cost(killable_server, provider):
    """The outage is longer than a lease, and one of the two workers receives a stop signal during it."""
    make_launched_run(provider.url, lease_s=LEASE_S)
    with drain_process() as stopped, drain_process() as worker:
        wait_for_work()
        kill_server(killable_server)
        provider.set_faults(latency_ms=50)
        restart_at = time.monotonic() + 1.5 * LEASE_S
        stopped.terminate()
        wait_until(lambda: time.monotonic() > restart_at)
        assert stopped.poll() is None, "it left with answers that it had not written"
        killable_server.start()
        assert stopped.wait(timeout=300) == 0
        assert worker.wait(timeout=300) == 0
    assert_each_trial_is_done_once(provider)


def test_lost_connections_lose_no_result_and_repeat_no_cost(provider):
    make_launched_run(provider.url)
    with drain_process() as first, drain_process() as second:
        wait_for_work()
        cuts, deadline = 0, time.monotonic() + 4
        while time.monotonic() < deadline or cuts <= 2:
            assert Run.objects.get().status == "running", "it was over before they were cut"
            cuts += cut_connections()
        provider.set_faults(latency_ms=50)
        assert (first.wait(timeout=300), second.wait(timeout=300)) == (0, 0)
    assert_each_trial_is_done_once(provider)


def cut_connections():
    """End the connections of all other clients. Return their number."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return cursor.fetchone()[0]


def test_claims_of_a_worker_that_died_with_the_server_expire_after_one_lease(killable_server, provider):
    run = make_launched_run(provider.url, lease_s=LEASE_S)
    with drain_process() as worker:
        wait_for_work(workers=1)
        kill_server(killable_server)
        os.killpg(worker.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    killable_server.start()
    started_at = time.monotonic()
    claimed = run.trials.filter(status="running").count()
    assert 0 < claimed <= MAX_CLAIMS
    returned = []
    wait_until(lambda: returned.append(sweep_expired()) or sum(returned) >= claimed, seconds=60)
    assert sum(returned) == claimed
    assert time.monotonic() - killed_at >= LEASE_S
    assert time.monotonic() - started_at < LEASE_S + 30
    assert run.trials.filter(status="running").count() == 0
    assert find_differences() == []
