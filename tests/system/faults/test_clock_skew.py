"""Leases, waits and rates use the clock of the database: a wrong clock of a worker has no effect."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.batches.batch_lease import take_lease
from runs_app.batches.batch_worker import admit_batches
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, Endpoint, Experiment, Run
from tests.factories.batches import make_batched_run
from tests.factories.engine import admit, build_reply, drain, register_worker
from tests.integration.engine.conftest import experiment, run  # noqa: F401 - fixtures


def shift_clock(**offset):
    """Shift the clock of this process, but not the clock of the database."""
    return time_machine.travel(datetime.now(UTC) + timedelta(**offset), tick=True)


@pytest.mark.parametrize("hours", [-1, 1, 24])
def test_a_worker_with_a_wrong_clock_calls_each_trial_once(run, monkeypatch, hours):  # noqa: F811
    """Each call takes longer than two leases, which its worker must renew. One trial waits for its retry."""
    monkeypatch.setattr("runs_app.engine.worker.SWEEP_S", 0.2)
    monkeypatch.setattr("runs_app.engine.outcomes.compute_backoff_s", lambda *_, **__: 0.2)
    Experiment.objects.update(lease_s=1)
    requests = []

    async def call(request):
        requests.append(request)
        if len(requests) == 1:
            raise CallFailure(ErrorClass.SERVER_ERROR, "unwell", http_status=500)
        await asyncio.sleep(2.2)
        return build_reply()

    with shift_clock(hours=hours):
        drain(call)
    assert len(requests) == 7
    assert list(Attempt.objects.values_list("outcome", flat=True).order_by("outcome")) == ["ok"] * 6 + ["transient"]
    assert find_differences() == []


@pytest.mark.parametrize("hours", [-1, 1])
def test_an_endpoint_is_paused_for_the_requested_time(run, hours):  # noqa: F811
    async def call(request):
        raise CallFailure(ErrorClass.RATE_LIMITED, "slow down", http_status=429, retry_after_s=600)

    with shift_clock(hours=hours):
        drain(call, stop_at=1)
        assert admit(register_worker(), 6) == []
    wait = Endpoint.objects.get().paused_until - datetime.now(UTC)
    assert timedelta(seconds=580) < wait < timedelta(seconds=601)


@pytest.mark.django_db
def test_a_batch_created_by_a_fast_clock_can_be_leased_immediately():
    make_batched_run("http://127.0.0.1:9/v1")
    with shift_clock(minutes=10):
        (batch_id,) = admit_batches()
    assert take_lease(register_worker()).batch.pk == batch_id


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_run_finishes_after_its_start_whatever_the_clock(run, hours):  # noqa: F811
    with shift_clock(hours=hours):
        run_control.cancel(Run.objects.all(), by="tester", reason="enough")
    assert abs(Run.objects.get().finished_at - datetime.now(UTC)) < timedelta(minutes=5)
