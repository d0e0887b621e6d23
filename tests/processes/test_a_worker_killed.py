"""Two worker processes on one experiment, one killed with -9: nothing is lost, doubled, or paid twice but what flew."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection

from runs_app.models import Attempt, Endpoint, Run, Trial, Worker
from runs_app.reconciling import differences
from runs_app.simulating.config import SimulatorConfig
from runs_app.simulating.launching import simulator_process
from tests import factories

ROOT = Path(__file__).resolve().parents[2]
IN_FLIGHT = 16
LEASE_S = 4.0

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def database_url():
    known = connection.settings_dict
    parts = {"host": known["HOST"], "port": known["PORT"], "user": known["USER"], "password": known["PASSWORD"]}
    query = "&".join(f"{name}={value}" for name, value in parts.items() if value)
    return f"postgresql:///{known['NAME']}?{query}"


@contextmanager
def drain_process(**environment):
    """A worker as an operator starts it, in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "drain", "--until-idle", "--concurrency", str(IN_FLIGHT)],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_until(is_true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def launched(base_url, items=40, samples=10):
    endpoint = factories.make_endpoint("rehearsal", base_url=base_url, max_concurrency=2 * IN_FLIGHT, is_free=True)
    experiment = factories.make_experiment(
        "killed",
        dataset=factories.make_dataset("many", items),
        models=[factories.make_model("sim", endpoint=endpoint)],
        samples=samples,
        lease_s=LEASE_S,
        max_usd=None,
    )
    (run,) = factories.make_runs(experiment)
    run.max_concurrency = 2 * IN_FLIGHT
    run.save()
    factories.plan_trials(run)
    return run


def done():
    return Run.objects.get().n_done


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_every_trial_is_written_once_and_only_what_was_in_flight_is_asked_again(zone):
    with simulator_process(SimulatorConfig(latency_ms=50)) as provider:
        run = launched(provider.url)
        with drain_process(TZ=zone) as killed, drain_process(TZ=zone) as survivor:
            wait_until(lambda: Worker.objects.count() == 2 and done() >= 60)
            victim = Worker.objects.get(pid=killed.pid)
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
            at_kill = time.monotonic()
            held = Trial.objects.filter(status="running", worker=victim).count()
            survivor.wait(timeout=60)
            back_after = time.monotonic() - at_kill

        run.refresh_from_db()
        assert (run.status, run.n_done, run.n_failed) == ("done", 400, 0)
        assert provider.counters()["requests"] <= 400 + held
        assert held <= IN_FLIGHT
    assert Attempt.objects.filter(outcome="ok").count() == 400
    assert Attempt.objects.filter(outcome="lost").count() == held
    assert back_after < 60
    recovered = Trial.objects.filter(attempts=2).count()
    assert recovered == held
    assert Endpoint.objects.get().in_flight == 0
    assert differences() == []


def test_a_worker_told_to_stop_ends_what_it_began_and_gives_nothing_away():
    with simulator_process(SimulatorConfig(latency_ms=50)) as provider:
        run = launched(provider.url)
        with drain_process() as worker:
            wait_until(lambda: done() >= 20)
            worker.terminate()
            assert worker.wait(timeout=20) == 0
        run.refresh_from_db()
        assert run.n_running == 0
        assert provider.counters()["requests"] == run.n_done
    assert Worker.objects.get().left_at is not None
    assert differences() == []
