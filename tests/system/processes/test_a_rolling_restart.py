"""Workers replaced during a run, as in an upgrade: new workers join, old workers receive a stop signal."""

from contextlib import ExitStack

import pytest

from runs_app.models import Attempt, Endpoint, Run
from runs_app.monitoring.consistency_check import find_differences
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests.factories.engine import make_launched_run
from tests.system.processes.workers import busy_workers, drain_process, wait_until

TRIALS = 300

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def join(stack, workers):
    """So many more, once each of them is at work: calls take long until then."""
    wanted = busy_workers() + workers
    processes = [stack.enter_context(drain_process()) for _ in range(workers)]
    wait_until(lambda: busy_workers() == wanted or is_over())
    return processes


def is_over():
    return Run.objects.get().status != "running"


def leave(processes):
    for process in processes:
        process.terminate()
    return [process.wait(timeout=90) for process in processes]


def test_a_rolling_restart_neither_loses_nor_repeats_a_call():
    """Two workers are told to stop, with calls in flight, once a third one works."""
    with simulator_process(SimulatorConfig(latency_ms=4000)) as provider, ExitStack() as stack:
        run = make_launched_run(provider.url, items=30, samples=TRIALS // 30)
        Endpoint.objects.update(max_concurrency=100)  # Room for all of them.
        Run.objects.update(max_concurrency=100)
        old = join(stack, 2)
        new = join(stack, 1)
        assert not is_over(), "it was over before anybody was replaced"
        assert leave(old) == [0, 0]
        assert not is_over(), "the old ones did it all"
        provider.set_faults(latency_ms=100)
        assert [process.wait(timeout=120) for process in new] == [0]
        run.refresh_from_db()
        assert (run.status, run.n_done, run.n_failed) == ("done", TRIALS, 0)
        assert provider.counters()["requests"] == TRIALS
    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["ok"] * TRIALS
    assert Attempt.objects.values("trial").distinct().count() == TRIALS
    assert busy_workers() == 3
    assert find_differences() == []
