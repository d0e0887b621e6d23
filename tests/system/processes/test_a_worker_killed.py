"""Two worker processes on one experiment, one killed with -9: only calls in flight are repeated and paid twice."""

import os
import signal
import time
from contextlib import contextmanager

import pytest
from django.conf import settings
from django.db import transaction

from runs_app.engine.result_spool import RESULT_ADAPTER
from runs_app.models import Attempt, Endpoint, Run, Trial, Worker
from runs_app.monitoring.consistency_check import find_differences
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests import factories
from tests.system.processes.workers import HELD, IN_FLIGHT, drain_process, wait_until

LEASE_S = 4.0

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def launched(base_url, items=40, samples=10, lease_s=LEASE_S):
    endpoint = factories.make_endpoint("rehearsal", base_url=base_url, max_concurrency=2 * IN_FLIGHT, is_free=True)
    experiment = factories.make_experiment(
        "killed",
        dataset=factories.make_dataset("many", items),
        models=[factories.make_model("sim", endpoint=endpoint)],
        samples=samples,
        lease_s=lease_s,
        max_usd=None,
    )
    (run,) = factories.make_runs(experiment)
    run.max_concurrency = 2 * IN_FLIGHT
    run.save()
    factories.plan_trials(run)
    return run


def done():
    return Run.objects.get().n_done


@pytest.mark.quick
def test_every_trial_is_recorded_once_and_only_calls_in_flight_are_repeated():
    """Half a day apart by their own clocks, and this process, which looks at them, in between."""
    with simulator_process(SimulatorConfig(latency_ms=50)) as provider:
        run = launched(provider.url)
        with drain_process(TZ="America/New_York") as killed, drain_process(TZ="Asia/Tokyo") as survivor:
            wait_until(lambda: Worker.objects.count() == 2 and done() >= 60)
            victim = Worker.objects.get(pid=killed.pid)
            with nobody_writes():  # Else the server might still commit what it was told last, after we looked.
                os.killpg(killed.pid, signal.SIGKILL)
                killed.wait()
                held = Trial.objects.filter(status="running", worker=victim).count()
            at_kill = time.monotonic()
            survivor.wait(timeout=120)
            back_after = time.monotonic() - at_kill

        run.refresh_from_db()
        assert (run.status, run.n_done, run.n_failed) == ("done", 400, 0)
        assert provider.counters()["requests"] <= 400 + IN_FLIGHT
    assert Attempt.objects.filter(outcome="ok").count() == 400
    assert back_after < 60
    lost = Attempt.objects.filter(outcome="lost").count()
    assert lost == Trial.objects.filter(attempts=2).count() <= held <= HELD
    assert Endpoint.objects.get().in_flight == 0
    assert find_differences() == []


def running():
    return Trial.objects.filter(status="running").values_list("pk", flat=True)


def unwritten(folder):
    """Trials whose answers a worker has, and could not write yet."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_bytes().split(b"\n")[:-1]]
    answered = {RESULT_ADAPTER.validate_json(line).claim.trial_id for line in lines}
    return set(running().filter(pk__in=answered))


@contextmanager
def nobody_writes():
    """Every turn waits for who holds the endpoint's row."""
    with transaction.atomic():
        Endpoint.objects.select_for_update().get()
        yield


def wait_for_progress(worker):
    target = done() + 2 * IN_FLIGHT
    wait_until(lambda: done() >= target or worker.poll() is not None)


def kill_with_unwritten_answers(worker, more_than):
    """Kill `worker` while it has all answers to its claims and has written none of them; return their trials.

    How many it claims ahead follows its speed, so a moment with too few claims passes and a later one is taken.
    """
    while worker.poll() is None:
        with nobody_writes():
            if running().count() > more_than:
                wait_until(lambda: unwritten(settings.RESULT_SPOOL_DIR) == set(running()))
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
                return set(running())
        wait_for_progress(worker)
    raise AssertionError("the worker finished before it had enough claims")


def test_another_worker_records_the_received_answers_without_new_calls():
    """However many: their slots were handed on, so that they may be more than were ever in flight at once."""
    with simulator_process(SimulatorConfig(latency_ms=50)) as provider:
        run = launched(provider.url, samples=20, lease_s=120.0)
        with drain_process() as killed:
            wait_until(lambda: done() >= 60)
            had = kill_with_unwritten_answers(killed, more_than=IN_FLIGHT)
        with drain_process() as other:
            other.wait(timeout=120)
        assert provider.counters()["requests"] == 800
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed) == ("done", 800, 0)
    assert set(Attempt.objects.filter(trial__in=had).values_list("outcome", "trial__attempts")) == {("ok", 1)}
    assert Attempt.objects.filter(outcome="ok").count() == 800
    assert find_differences() == []


def test_a_stopping_worker_finishes_its_calls_and_leaves_no_claim():
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
    assert find_differences() == []
