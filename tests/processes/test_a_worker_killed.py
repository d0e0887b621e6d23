"""Two worker processes on one experiment, one killed with -9: nothing is lost, doubled, or paid twice but what flew."""

import os
import signal
import time

import pytest

from runs_app.models import Attempt, Endpoint, Run, Trial, Worker
from runs_app.reconciling import differences
from runs_app.simulating.config import SimulatorConfig
from runs_app.simulating.launching import simulator_process
from tests import factories
from tests.processes.workers import HELD, IN_FLIGHT, drain_process, wait_until

LEASE_S = 4.0

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


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
            survivor.wait(timeout=120)
            back_after = time.monotonic() - at_kill

        run.refresh_from_db()
        assert (run.status, run.n_done, run.n_failed) == ("done", 400, 0)
        assert provider.counters()["requests"] <= 400 + held
        assert held <= HELD
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
            assert worker.wait(timeout=60) == 0
        run.refresh_from_db()
        assert run.n_running == 0
        assert provider.counters()["requests"] == run.n_done
    assert Worker.objects.get().left_at is not None
    assert differences() == []
