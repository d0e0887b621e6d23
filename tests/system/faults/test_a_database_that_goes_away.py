"""PostgreSQL killed during the work, or connections cut: workers wait, resume, and repeat no call."""

import os
import signal
import time

import pytest
from django.db import connection

from runs_app.engine.leases import sweep_expired
from runs_app.models import Attempt, Run
from runs_app.monitoring.consistency_check import find_differences
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests.factories.engine import make_launched_run
from tests.system.postgres.conftest import servers_in
from tests.system.processes.workers import IN_FLIGHT, MAX_CLAIMS, count_busy_workers, drain_process, wait_until

TRIALS = 300
LEASE_S = 3

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def provider():
    with simulator_process(SimulatorConfig(latency_ms=1000)) as process:
        yield process


def wait_for_work(provider, workers=2):
    """Until each worker is at it and some is done. Calls take long until then: one worker alone would do it all."""
    wait_until(lambda: count_busy_workers() == workers)
    provider.set_faults(latency_ms=200)
    wait_until(lambda: Run.objects.get().n_done >= 3 * IN_FLIGHT)


def kill(embedded):
    """As the kernel does where memory ends: every process of the server at once."""
    connection.close()
    while servers := servers_in(embedded.data_dir):
        for pid in servers:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def assert_all_is_done_once(provider):
    run = Run.objects.get()
    assert (run.status, run.n_done, run.n_failed) == ("done", TRIALS, 0)
    assert provider.counters()["requests"] == TRIALS
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"ok"}
    assert Attempt.objects.count() == TRIALS
    assert find_differences() == []


def test_a_killed_and_restarted_server_loses_no_result_and_repeats_no_cost(mortal, provider):
    """It is away for longer than a lease, and one of the two workers is told to stop meanwhile."""
    make_launched_run(provider.url, lease_s=LEASE_S)
    with drain_process() as stopped, drain_process() as worker:
        wait_for_work(provider)
        kill(mortal)
        back_at = time.monotonic() + 1.5 * LEASE_S
        stopped.terminate()
        wait_until(lambda: time.monotonic() > back_at)
        assert stopped.poll() is None, "it left with answers that it had not written"
        mortal.start()
        assert stopped.wait(timeout=90) == 0
        assert worker.wait(timeout=120) == 0
    assert_all_is_done_once(provider)


def test_lost_connections_lose_no_result_and_repeat_no_cost(provider):
    make_launched_run(provider.url)
    with drain_process() as one, drain_process() as other:
        wait_for_work(provider)
        cuts, until = 0, time.monotonic() + 4
        while time.monotonic() < until or cuts <= 2:
            assert Run.objects.get().status == "running", "it was over before they were cut"
            cuts += cut_connections()
        assert (one.wait(timeout=120), other.wait(timeout=120)) == (0, 0)
    assert_all_is_done_once(provider)


def cut_connections():
    """Of all others. How many there were."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return cursor.fetchone()[0]


def test_claims_of_a_worker_that_died_with_the_server_expire_after_one_lease(mortal, provider):
    run = make_launched_run(provider.url, lease_s=LEASE_S)
    with drain_process() as dead:
        wait_for_work(provider, workers=1)
        kill(mortal)
        os.killpg(dead.pid, signal.SIGKILL)
    killed = time.monotonic()
    mortal.start()
    started = time.monotonic()
    held = run.trials.filter(status="running").count()
    assert 0 < held <= MAX_CLAIMS
    returned = []
    wait_until(lambda: returned.append(sweep_expired()) or sum(returned) >= held, seconds=60)
    assert sum(returned) == held
    assert time.monotonic() - killed >= LEASE_S
    assert time.monotonic() - started < LEASE_S + 15
    assert run.trials.filter(status="running").count() == 0
    assert find_differences() == []
