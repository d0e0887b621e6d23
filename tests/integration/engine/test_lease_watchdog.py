"""A drain that stands still for longer than a lease keeps what it holds; one that hangs for good gives it back."""

import asyncio
import threading
import time

import pytest
from django.db import connections

from runs_app.engine import lease_watchdog
from runs_app.engine.admission import admit
from runs_app.engine.leases import renew_worker_leases, sweep_expired
from runs_app.engine.worker import Drain, DrainLimits
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Attempt, Experiment, Trial
from runs_app.monitoring.consistency_check import find_differences
from tests.factories.engine import expire_leases, register_worker, reply

LEASE_S = 3.0  # A thread that renews them has to come to a processor within half of it.
DEADLINE_S = 40


class Stall:
    """Where a thread of the drain stands still, once, until it is let go."""

    def __init__(self):
        self.began, self.over = threading.Event(), threading.Event()

    def stand_still(self):
        if not self.began.is_set():
            self.began.set()
            assert self.over.wait(DEADLINE_S)


class SlowBeat(WorkerRegistration):
    """Its second beat takes as long as the stall: the database's thread is busy with it."""

    def __init__(self, stall):
        super().__init__()
        self.stall = stall

    def send_heartbeat(self, in_flight, recorded):
        if in_flight:
            self.stall.stand_still()
        super().send_heartbeat(in_flight, recorded)


def started(call, registration):
    """A drain in a thread of its own, until nothing is left."""

    async def go():
        await Drain(call, registration, DrainLimits(until_idle=True)).run()

    def run():
        try:
            asyncio.run(go())
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def swept_until(is_enough):
    """Sweep as other workers do, again and again; returns how many claims were taken back, and after how long."""
    taken, began = 0, time.monotonic()
    while not is_enough(taken, time.monotonic() - began):
        assert time.monotonic() - began < DEADLINE_S
        taken += sweep_expired()
        threading.Event().wait(0.05)
    return taken, time.monotonic() - began


@pytest.fixture
def leased(experiment):
    Experiment.objects.update(lease_s=LEASE_S)
    return experiment


def test_a_loop_that_is_blocked_for_longer_than_a_lease_loses_nothing(leased, caplog):
    stall = Stall()

    async def blocking(request):
        stall.stand_still()
        return reply()

    thread = started(blocking, WorkerRegistration())
    assert stall.began.wait(DEADLINE_S)
    taken, _ = swept_until(lambda taken, after: after > 1.2 * LEASE_S)
    stall.over.set()
    thread.join(DEADLINE_S)

    assert taken == 0
    assert set(Trial.objects.values_list("status", "attempts")) == {("done", 1)}
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"ok"}
    assert "the watchdog renewed" in caplog.text
    assert find_differences() == []


def test_a_database_thread_that_is_busy_for_longer_than_a_lease_loses_nothing(leased):
    stall = Stall()

    asked = []

    async def answering_during_and_after_the_stall(request):
        """Every other answer comes while nothing can be written, and waits."""
        asked.append(request)
        awaited = stall.began if len(asked) % 2 else stall.over
        while not awaited.is_set():
            await asyncio.sleep(0.05)
        return reply()

    thread = started(answering_during_and_after_the_stall, SlowBeat(stall))
    assert stall.began.wait(DEADLINE_S)
    taken, _ = swept_until(lambda taken, after: after > 1.2 * LEASE_S)
    stall.over.set()
    thread.join(DEADLINE_S)

    assert taken == 0
    assert set(Trial.objects.values_list("status", "attempts")) == {("done", 1)}
    assert find_differences() == []


def test_claims_of_a_hung_drain_are_released_and_its_late_answers_change_nothing(leased, caplog, monkeypatch):
    monkeypatch.setattr(lease_watchdog, "MAX_SILENT_LEASES", 1)
    stall = Stall()

    async def hanging(request):
        stall.stand_still()
        return reply("late")

    async def answering(request):
        return reply("in time")

    thread = started(hanging, WorkerRegistration())
    assert stall.began.wait(DEADLINE_S)
    taken, after = swept_until(lambda taken, after: taken > 0)
    assert taken == 6
    # Its patience, and the lease that was renewed last; a quarter for threads that had to wait for a processor.
    assert after > lease_watchdog.MAX_SILENT_LEASES * LEASE_S * 0.75
    assert "its leases expire now" in caplog.text

    started(answering, WorkerRegistration()).join(DEADLINE_S)
    stall.over.set()
    thread.join(DEADLINE_S)
    assert set(Trial.objects.values_list("status", "attempts", "answer")) == {("done", 2, "in time")}
    assert sorted(Attempt.objects.values_list("outcome", flat=True)) == ["late"] * 6 + ["ok"] * 6
    assert find_differences() == []


def test_a_worker_renews_only_its_own_leases_and_none_of_batches(leased):
    mine, theirs = register_worker(), register_worker()
    admit(mine, 2)
    admit(theirs, 2)
    expire_leases()
    batched = Trial.objects.filter(worker_id=mine).first()
    Trial.objects.filter(pk=batched.pk).update(lease_until=None)
    assert renew_worker_leases(mine) == 1
    assert sweep_expired() == 2
    assert set(Trial.objects.filter(status="running").values_list("worker_id", flat=True)) == {mine}
