"""The task queue: which cluster dequeues a task, and when a cluster is considered hanging."""

import asyncio
import subprocess
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import DatabaseError
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.tasks import async_task

from runs_app import tasks
from runs_app.engine.worker import Drain, DrainLimits
from runs_app.monitoring.progress import find_live_workers
from runs_app.processes.worker_process import run_worker
from runs_app.taskqueue import broker
from runs_app.taskqueue.broker import MAX_LATE_CHECKS, Broker, Pulse, requeue_tasks
from runs_app.taskqueue.supervisor_channel import VARIABLE, SupervisorChannel
from tests.factories.engine import build_reply
from tests.integration.engine.conftest import experiment, run  # noqa: F401 - fixtures

pytestmark = pytest.mark.django_db


@pytest.fixture
def channel(tmp_path, monkeypatch):
    with SupervisorChannel.create_in(tmp_path) as created:
        monkeypatch.setenv(VARIABLE, str(created.folder))
        yield created


@pytest.fixture(autouse=True)
def use_test_connection(monkeypatch):
    """Poll without pauses, and keep the connection open, because it has the transaction of the test."""
    monkeypatch.setattr(Conf, "POLL", 0)
    monkeypatch.setattr(broker, "close_old_connections", lambda: None)


@pytest.fixture
def replaced():
    return []


@pytest.fixture
def pulse(channel, replaced):
    return Pulse(channel, workers=2, replace=replaced.append)


def list_queue_keys() -> list[str]:
    return list(OrmQ.objects.order_by("pk").values_list("key", flat=True))


def start_busy_workers(channel, n):
    """Start `n` processes that are marked as busy queue workers."""
    sleepers = [subprocess.Popen(["/bin/sleep", "60"]) for _ in range(n)]
    for sleeper in sleepers:
        (channel.folder / f"busy-{sleeper.pid}").touch()
    return sleepers


# --- dequeuing -------------------------------------------------------------------------------------------------------


def test_a_cluster_dequeues_a_shared_task_once_and_moves_it_to_its_own_queue(channel):
    async_task(broker.MAINTENANCE_TASK)
    ((pk, payload),) = Broker().dequeue()
    row = OrmQ.objects.get()
    assert (row.pk, row.payload, row.key) == (pk, payload, channel.queue)
    assert row.lock > timezone.now() + timedelta(seconds=Conf.RETRY - 60)
    assert Broker().dequeue() == []


def test_a_cluster_without_a_supervisor_uses_only_the_shared_queue(channel, monkeypatch):
    async_task(broker.MAINTENANCE_TASK, cluster=channel.queue)
    async_task(broker.MAINTENANCE_TASK)
    monkeypatch.delenv(VARIABLE)
    assert len(Broker().dequeue()) == 1
    assert Broker().dequeue() == []
    assert list_queue_keys() == [channel.queue, Conf.CLUSTER_NAME]


def test_tasks_of_a_dead_cluster_return_to_the_shared_queue(channel):
    async_task(broker.MAINTENANCE_TASK)
    assert Broker().dequeue()
    requeue_tasks(channel)
    assert list_queue_keys() == [Conf.CLUSTER_NAME]
    assert len(Broker().dequeue()) == 1


# --- hanging clusters ------------------------------------------------------------------------------------------------


def test_a_pulse_queues_one_tend_task_for_its_cluster(channel, pulse):
    pulse()
    row = OrmQ.objects.get()
    assert row.key == channel.pulse_queue
    assert (row.task["func"], row.task["args"]) == (broker.MAINTENANCE_TASK, (channel.queue,))
    pulse()
    assert OrmQ.objects.count() == 1, "nothing is asked twice"


def test_an_answered_pulse_is_repeated_only_after_an_interval(pulse, monkeypatch):
    pulse()
    OrmQ.objects.all().delete()
    pulse()
    assert not OrmQ.objects.exists()
    monkeypatch.setattr(broker, "PULSE_S", 0)
    pulse._due = 0
    pulse()
    assert OrmQ.objects.count() == 1


def test_a_cluster_that_ignores_a_pulse_with_an_idle_worker_is_replaced_once(channel, pulse, replaced):
    sleepers = start_busy_workers(channel, 1)
    try:
        for _ in range(MAX_LATE_CHECKS):
            assert replaced == []
            pulse()
        pulse()
        assert len(replaced) == 1
    finally:
        _kill(sleepers)


def test_a_pulse_with_a_lost_answer_is_repeated_once(pulse, replaced):
    pulse()
    lost = OrmQ.objects.get().pk
    while OrmQ.objects.get().pk == lost:
        pulse()
    OrmQ.objects.all().delete()  # This time the answer of the cluster arrives.
    for _ in range(MAX_LATE_CHECKS):
        pulse()
    assert replaced == []


def test_a_cluster_with_only_busy_workers_is_not_replaced(channel, pulse, replaced):
    sleepers = start_busy_workers(channel, 2)
    try:
        for _ in range(3 * MAX_LATE_CHECKS):
            pulse()
        assert replaced == []
    finally:
        _kill(sleepers)
    assert channel.count_busy() == 0, "the notices of workers that were killed do not count"


def test_a_cluster_that_still_loads_its_program_is_not_replaced(channel, pulse, replaced, monkeypatch):
    channel.mark_starting()
    for _ in range(3 * MAX_LATE_CHECKS):
        pulse()
    assert replaced == []
    monkeypatch.setattr("runs_app.taskqueue.supervisor_channel.LONGEST_START_S", 0)
    for _ in range(MAX_LATE_CHECKS):
        pulse()
    assert len(replaced) == 1


def test_workers_start_after_the_model_library_is_loaded(channel, monkeypatch):
    """Otherwise the first launch would wait for it, in each worker."""
    steps = []
    monkeypatch.setattr("runs_app.llm.gateway.warm_up", lambda: steps.append(("load", channel.is_starting())))
    monkeypatch.setattr(
        "django_q.management.commands.qcluster.Cluster.start",
        lambda self: steps.append(("fork", channel.is_starting())),
    )
    call_command("qcluster")
    assert steps == [("load", True), ("fork", False)]


def test_a_worker_is_alive_while_it_loads_the_model_library(db, monkeypatch):
    """Else `launch --wait` says that no worker is running."""
    alive = []

    def load():
        alive.append(find_live_workers().count())
        raise KeyboardInterrupt

    monkeypatch.setattr("runs_app.llm.gateway.warm_up", load)
    with pytest.raises(KeyboardInterrupt):
        run_worker(DrainLimits(), watch=None)
    assert alive == [1]


def test_database_errors_do_not_count_against_the_cluster(pulse, replaced, monkeypatch):
    for _ in range(MAX_LATE_CHECKS - 1):
        pulse()
    with monkeypatch.context() as patch:
        patch.setattr(pulse, "_check", lambda: (_ for _ in ()).throw(DatabaseError))
        with pytest.raises(DatabaseError):
            pulse()
    for _ in range(MAX_LATE_CHECKS - 1):
        pulse()
    assert replaced == []


def test_a_new_cluster_starts_without_late_checks(channel, pulse, replaced):
    async_task(broker.MAINTENANCE_TASK)
    Broker().dequeue()
    for _ in range(MAX_LATE_CHECKS - 1):
        pulse()
    pulse.reset()
    pulse()
    assert replaced == []
    assert list_queue_keys() == [Conf.CLUSTER_NAME, channel.pulse_queue]


def _kill(sleepers):
    for sleeper in sleepers:
        sleeper.kill()
        sleeper.wait()


# --- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_stopping_drain_claims_no_more_trials_and_frees_its_queue_worker(channel, run, monkeypatch):  # noqa: F811
    from runs_app.llm import gateway

    original_stop, stopped_drains = Drain.stop, []

    def record_stop(drain):
        stopped_drains.append(drain)
        original_stop(drain)

    async def call(request):
        channel.request_stop()
        async with asyncio.timeout(60):
            while not stopped_drains:
                await asyncio.sleep(0.01)
        return build_reply()

    type(run).objects.filter(pk=run.pk).update(max_concurrency=1)
    monkeypatch.setattr(gateway, "call", call)
    monkeypatch.setattr(Drain, "stop", record_stop)
    monkeypatch.setattr(gateway, "warm_up", lambda: None)
    assert tasks.drain() == 1
    run.refresh_from_db()
    assert (run.n_done, run.n_pending, run.n_running) == (1, 5, 0)
    assert tasks.drain() == 0, "none starts while the site stops"
    with tasks.drain_slot() as is_free:
        assert is_free
