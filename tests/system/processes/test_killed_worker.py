"""Two worker processes on one experiment, one killed with -9: only calls in flight are repeated and paid twice."""

import os
import signal
import time
from contextlib import contextmanager

import pytest
from django.conf import settings
from django.db import transaction

from grading_app.grading.consistency_check import find_differences
from runs_app.engine.result_spool import LINE_ADAPTER
from runs_app.models import Attempt, Endpoint, Run, Trial, Worker
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests import factories
from tests.system.processes.workers import IN_FLIGHT, MAX_CLAIMS, drain_process, wait_until

LEASE_S = 6.0  # Longer than a busy machine stops the other worker.

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def make_run(base_url, items=40, samples=10, lease_s=LEASE_S):
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


def count_done():
    return Run.objects.get().n_done


@pytest.mark.quick
def test_every_trial_is_recorded_once_and_only_calls_in_flight_are_repeated():
    """The clocks of the two workers differ by half a day; the clock of this process lies between them."""
    with simulator_process(SimulatorConfig(latency_ms=50)) as provider:
        run = make_run(provider.url)
        with drain_process(TZ="America/New_York") as killed, drain_process(TZ="Asia/Tokyo") as survivor:
            wait_until(lambda: Worker.objects.count() == 2 and count_done() >= 60)
            victim = Worker.objects.get(pid=killed.pid)
            with block_writers():  # Else the server might commit the last statement after the claims are counted.
                os.killpg(killed.pid, signal.SIGKILL)
                killed.wait()
                claimed = Trial.objects.filter(status="running", worker=victim).count()
            killed_at = time.monotonic()
            survivor.wait(timeout=300)
            recovery_s = time.monotonic() - killed_at

        run.refresh_from_db()
        assert (run.status, run.n_done, run.n_failed) == ("done", 400, 0)
        assert provider.counters()["requests"] <= 400 + IN_FLIGHT
    assert Attempt.objects.filter(outcome="ok").count() == 400
    assert recovery_s < 60
    lost = Attempt.objects.filter(outcome="lost").count()
    assert lost == Trial.objects.filter(attempts=2).count() <= claimed <= MAX_CLAIMS
    assert Endpoint.objects.get().in_flight == 0
    assert find_differences() == []


def list_running():
    return Trial.objects.filter(status="running").values_list("pk", flat=True)


def list_unwritten(folder):
    """Return the running trials whose answers are in a result spool of the folder, and not yet in the database."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_bytes().split(b"\n")[:-1]]
    answered = {LINE_ADAPTER.validate_json(line).claim.trial_id for line in lines}
    return set(list_running().filter(pk__in=answered))


@contextmanager
def block_writers():
    """Hold the row of the endpoint, which every turn of a worker needs."""
    with transaction.atomic():
        Endpoint.objects.select_for_update().get()
        yield


def wait_for_progress(worker):
    target = count_done() + 2 * IN_FLIGHT
    wait_until(lambda: count_done() >= target or worker.poll() is not None)


def kill_with_unwritten_answers(worker, more_than):
    """Kill the worker when it has received all answers to its claims and written none. Return the claimed trials.

    The number of claims depends on the speed of the worker, so wait for a moment with more than `more_than` of them.
    """
    while worker.poll() is None:
        with block_writers():
            if list_running().count() > more_than:
                wait_until(lambda: list_unwritten(settings.RESULT_SPOOL_DIR) == set(list_running()))
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
                return set(list_running())
        wait_for_progress(worker)
    raise AssertionError("the worker finished before it had enough claims")


def test_another_worker_records_the_received_answers_without_new_calls():
    """There may be more answers than slots, because a received answer frees its slot before it is written."""
    with simulator_process(SimulatorConfig(latency_ms=50)) as provider:
        run = make_run(provider.url, samples=20, lease_s=120.0)
        with drain_process() as killed:
            wait_until(lambda: count_done() >= 60)
            received = kill_with_unwritten_answers(killed, more_than=IN_FLIGHT)
        with drain_process() as other:
            other.wait(timeout=300)
        assert provider.counters()["requests"] == 800
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed) == ("done", 800, 0)
    assert set(Attempt.objects.filter(trial__in=received).values_list("outcome", "trial__attempts")) == {("ok", 1)}
    assert Attempt.objects.filter(outcome="ok").count() == 800
    assert find_differences() == []


def test_a_stopping_worker_finishes_its_calls_and_leaves_no_claim():
    with simulator_process(SimulatorConfig(latency_ms=50)) as provider:
        run = make_run(provider.url)
        with drain_process() as worker:
            wait_until(lambda: count_done() >= 20)
            worker.terminate()
            assert worker.wait(timeout=300) == 0
        run.refresh_from_db()
        assert run.n_running == 0
        assert provider.counters()["requests"] == run.n_done
    assert Worker.objects.get().stopped_at is not None
    assert find_differences() == []
