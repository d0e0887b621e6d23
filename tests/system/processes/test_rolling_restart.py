"""Workers replaced during a run, as in an upgrade: new workers start, old workers receive a stop signal."""

from contextlib import ExitStack

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app.models import Attempt, Endpoint, Run
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests.factories.engine import make_launched_run
from tests.system.processes.workers import count_busy_workers, drain_process, wait_until

TRIALS = 300

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def start_workers(stack, workers):
    """Start workers and wait until each has claimed trials. Calls are slow, so that none remains without work."""
    expected = count_busy_workers() + workers
    processes = [stack.enter_context(drain_process()) for _ in range(workers)]
    wait_until(lambda: count_busy_workers() == expected or is_over())
    return processes


def is_over():
    return Run.objects.get().status != "running"


def stop_workers(processes):
    for process in processes:
        process.terminate()
    return [process.wait(timeout=300) for process in processes]


def test_a_rolling_restart_neither_loses_nor_repeats_a_call():
    """Two workers with calls in flight receive the stop signal after a third worker has claimed trials."""
    with simulator_process(SimulatorConfig(latency_ms=4000)) as provider, ExitStack() as stack:
        run = make_launched_run(provider.url, items=30, samples=TRIALS // 30)
        Endpoint.objects.update(max_concurrency=100)  # Capacity for all workers.
        Run.objects.update(max_concurrency=100)
        old = start_workers(stack, 2)
        new = start_workers(stack, 1)
        assert not is_over(), "it was over before anybody was replaced"
        assert stop_workers(old) == [0, 0]
        assert not is_over(), "the old ones did it all"
        provider.set_faults(latency_ms=100)
        assert [process.wait(timeout=300) for process in new] == [0]
        run.refresh_from_db()
        assert (run.status, run.n_done, run.n_failed) == ("done", TRIALS, 0)
        assert provider.counters()["requests"] == TRIALS
    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["ok"] * TRIALS
    assert Attempt.objects.values("trial").distinct().count() == TRIALS
    assert count_busy_workers() == 3
    assert find_differences() == []
