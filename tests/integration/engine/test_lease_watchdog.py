"""A drain that is blocked for longer than a lease keeps its claims; a hung drain loses them."""

import asyncio
import threading
import time

import pytest
from django.db import connections

from grading_app.grading.consistency_check import find_differences
from runs_app.engine import leases, worker
from runs_app.engine.leases import renew_worker_leases, sweep_expired
from runs_app.engine.worker import Drain, DrainLimits
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Attempt, Experiment, Trial
from tests.factories.engine import admit, build_reply, expire_leases, register_worker
from tests.system.processes.workers import wait_until

LEASE_S = 3.0  # The renewing thread must get a processor within half of it. See `sweep_until` for a stopped process.
HUNG_LEASE_S = 1.0  # Nothing is renewed in time.
DEADLINE_S = 90


class Stall:
    """A point where a thread of the drain blocks, once, until `over` is set."""

    def __init__(self):
        self.began, self.over = threading.Event(), threading.Event()

    def block(self):
        if not self.began.is_set():
            self.began.set()
            assert self.over.wait(DEADLINE_S)


class SlowBeat(WorkerRegistration):
    """A registration whose heartbeat blocks the database thread for the duration of the stall."""

    def __init__(self, stall):
        super().__init__()
        self.stall = stall

    def send_heartbeat(self, in_flight, recorded):
        if in_flight:
            self.stall.block()
        super().send_heartbeat(in_flight, recorded)


def start_drain(call, registration):
    """Start a drain in its own thread; it ends when idle."""

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


def sweep_until(is_enough):
    """Sweep repeatedly, as other workers do; return the number of expired claims and the elapsed seconds.

    If the machine stopped this process, it stopped the watchdog too: let it renew the leases before the next sweep.
    """
    n_expired, began = 0, time.monotonic()
    swept = began
    while not is_enough(n_expired, time.monotonic() - began):
        assert time.monotonic() - began < DEADLINE_S
        if time.monotonic() - swept < LEASE_S / 4:
            n_expired += sweep_expired()
        else:
            threading.Event().wait(LEASE_S / 2)
        swept = time.monotonic()
        threading.Event().wait(0.05)
    return n_expired, time.monotonic() - began


@pytest.fixture
def leased(experiment):
    Experiment.objects.update(lease_s=LEASE_S)
    return experiment


def test_a_drain_keeps_its_claims_while_its_event_loop_is_blocked_longer_than_a_lease(leased, caplog):
    stall = Stall()

    async def block_loop(request):
        stall.block()
        return build_reply()

    thread = start_drain(block_loop, WorkerRegistration())
    assert stall.began.wait(DEADLINE_S)
    n_expired, _ = sweep_until(lambda n_expired, elapsed_s: elapsed_s > 1.2 * LEASE_S)
    stall.over.set()
    thread.join(DEADLINE_S)

    assert n_expired == 0
    assert set(Trial.objects.values_list("status", "attempts")) == {("done", 1)}
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"ok"}
    assert "the watchdog renewed" in caplog.text
    assert find_differences() == []


def test_a_drain_keeps_its_claims_while_its_database_thread_is_busy_longer_than_a_lease(leased):
    stall = Stall()

    requests = []

    async def answer_during_or_after_stall(request):
        """Give every second answer during the stall, when it cannot be recorded."""
        requests.append(request)
        awaited = stall.began if len(requests) % 2 else stall.over
        while not awaited.is_set():
            await asyncio.sleep(0.05)
        return build_reply()

    thread = start_drain(answer_during_or_after_stall, SlowBeat(stall))
    assert stall.began.wait(DEADLINE_S)
    n_expired, _ = sweep_until(lambda n_expired, elapsed_s: elapsed_s > 1.2 * LEASE_S)
    stall.over.set()
    thread.join(DEADLINE_S)

    assert n_expired == 0
    assert set(Trial.objects.values_list("status", "attempts")) == {("done", 1)}
    assert find_differences() == []


def test_claims_of_a_hung_drain_are_released_and_its_late_answers_change_nothing(leased, caplog, monkeypatch):
    monkeypatch.setattr(leases, "MAX_SILENT_LEASES", 1)
    Experiment.objects.update(lease_s=HUNG_LEASE_S)
    stall = Stall()

    async def hang(request):
        stall.block()
        return build_reply("late")

    async def answer(request):
        return build_reply("in time")

    thread = start_drain(hang, WorkerRegistration())
    assert stall.began.wait(DEADLINE_S)
    n_expired, elapsed_s = sweep_until(lambda n_expired, elapsed_s: n_expired > 0)
    assert n_expired == 6
    # MAX_SILENT_LEASES, and the last renewed lease; a quarter for threads that wait for a processor.
    assert elapsed_s > leases.MAX_SILENT_LEASES * HUNG_LEASE_S * 0.75
    wait_until(lambda: "its leases expire now" in caplog.text, DEADLINE_S)

    Experiment.objects.update(lease_s=LEASE_S)
    start_drain(answer, WorkerRegistration()).join(DEADLINE_S)
    stall.over.set()
    thread.join(DEADLINE_S)
    assert set(Trial.objects.values_list("status", "attempts", "answer")) == {("done", 2, "in time")}
    assert sorted(Attempt.objects.values_list("outcome", flat=True)) == ["late"] * 6 + ["ok"] * 6
    assert find_differences() == []


def test_a_drain_that_was_stopped_after_it_renewed_its_leases_does_not_release_its_own_claims(leased, monkeypatch):
    """The whole process stops for half a lease, so its watchdog renews nothing, and its leases expire meanwhile."""
    Experiment.objects.update(lease_s=1)
    monkeypatch.setattr(leases.LeaseWatchdog, "_renew", lambda watchdog, silent: None)
    monkeypatch.setattr(worker, "SWEEP_S", 0)
    is_over, stops = asyncio.Event(), []

    def stop_after_renewal(folder):
        """Stand for a process that is stopped between its renewal and its sweep, once while calls are in flight."""
        if Trial.objects.filter(status="running").exists() and not stops:
            time.sleep(0.6)
            expire_leases()
            stops.append(folder)
        return 0

    async def answer_after_sweep(request):
        requests.append(request)
        await is_over.wait()
        return build_reply()

    monkeypatch.setattr(worker, "record_orphaned_results", stop_after_renewal)
    sweep, requests = Drain._sweep, []

    def count_sweep(drain, renewed):
        sweep(drain, renewed)
        if stops:
            loops[0].call_soon_threadsafe(is_over.set)

    monkeypatch.setattr(Drain, "_sweep", count_sweep)
    registration, loops = WorkerRegistration(), []

    async def go():
        loops.append(asyncio.get_running_loop())
        await Drain(answer_after_sweep, registration, DrainLimits(until_idle=True)).run()

    asyncio.run(go())
    assert stops
    assert len(requests) == 6
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"ok"}
    assert find_differences() == []


def test_a_worker_renews_only_its_own_leases_of_single_calls(leased):
    mine, theirs = register_worker(), register_worker()
    admit(mine, 2)
    admit(theirs, 2)
    expire_leases()
    batched = Trial.objects.filter(worker_id=mine).first()
    Trial.objects.filter(pk=batched.pk).update(lease_until=None)
    assert renew_worker_leases(mine) == 1
    assert sweep_expired() == 2
    assert set(Trial.objects.filter(status="running").values_list("worker_id", flat=True)) == {mine}
