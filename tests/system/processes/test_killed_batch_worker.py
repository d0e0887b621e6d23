"""Workers killed with -9 while they submit and collect one batch: it is created, paid and recorded once."""

import os
import signal

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app.models import Attempt, ProviderBatch, Run
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests.factories.batches import end_all_waits, end_submission_search, make_batched_run
from tests.system.processes.workers import drain_process, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]
CALLS = 420  # Results are written in three transactions.


def kill_once(is_reached):
    """Start a worker and kill it with -9 as soon as `is_reached()` is true."""
    end_all_waits()
    with drain_process(EVALSITE_KEY_BATCH="sk-simulated") as worker:
        wait_until(lambda: is_reached() or worker.poll() is not None)
        assert worker.poll() is None, "the worker ended before it could be killed"
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def test_a_batch_survives_three_killed_workers():
    with simulator_process(SimulatorConfig(batch_waits={"create": 120})) as provider:
        run = make_batched_run(provider.url, items=CALLS)

        kill_once(lambda: ProviderBatch.objects.exclude(search_until=None).exists())
        assert ProviderBatch.objects.get().input_file != ""
        assert provider.counters()["batches"] == 0

        provider.set_faults(batch_waits={"answer": 120})
        end_submission_search()
        kill_once(lambda: provider.counters()["batches"] == 1)
        assert ProviderBatch.objects.get().provider_id == ""

        provider.set_faults(batch_waits={"half": 120})
        kill_once(lambda: Run.objects.get().n_done >= 200)
        assert Run.objects.get().n_done < CALLS

        provider.set_faults(batch_waits={})
        end_all_waits()
        with drain_process(EVALSITE_KEY_BATCH="sk-simulated") as last:
            assert last.wait(timeout=300) == 0

        counters = provider.counters()
        assert (counters["batches"], counters["batch_calls"], counters["answered_again"]) == (1, CALLS, 0)
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_attempts) == ("done", CALLS, CALLS)
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"ok"}
    assert ProviderBatch.objects.get().n_answered == CALLS
    assert find_differences() == []
