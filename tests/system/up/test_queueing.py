"""The task queue: which cluster takes a task, and when a cluster counts as hanging."""

import asyncio
import subprocess
from datetime import timedelta

import pytest
from django.db import DatabaseError
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.tasks import async_task

from runs_app import tasks
from runs_app.engine.worker import Drain
from runs_app.taskqueue import broker
from runs_app.taskqueue.broker import MAX_LATE_CHECKS, Broker, Pulse, requeue_tasks
from runs_app.taskqueue.supervisor_channel import VARIABLE, SupervisorChannel
from tests.factories.engine import reply
from tests.integration.engine.conftest import experiment, run  # noqa: F401 - fixtures

pytestmark = pytest.mark.django_db


@pytest.fixture
def board(tmp_path, monkeypatch):
    with SupervisorChannel.create_in(tmp_path) as made:
        monkeypatch.setenv(VARIABLE, str(made.folder))
        yield made


@pytest.fixture(autouse=True)
def within_a_test(monkeypatch):
    """No pauses, and a connection that is kept: it holds the test's transaction."""
    monkeypatch.setattr(Conf, "POLL", 0)
    monkeypatch.setattr(broker, "close_old_connections", lambda: None)


@pytest.fixture
def replaced():
    return []


@pytest.fixture
def pulse(board, replaced):
    return Pulse(board, workers=2, replace=replaced.append)


def keys() -> list[str]:
    return list(OrmQ.objects.order_by("pk").values_list("key", flat=True))


def busy(board, n):
    """Workers that do a task: processes that live, with their notices."""
    sleepers = [subprocess.Popen(["/bin/sleep", "60"]) for _ in range(n)]
    for sleeper in sleepers:
        (board.folder / f"busy-{sleeper.pid}").touch()
    return sleepers


# --- what a cluster takes --------------------------------------------------------------------------------------------


def test_a_cluster_dequeues_a_shared_task_once_and_moves_it_to_its_own_queue(board):
    async_task(broker.TEND_TASK)
    ((pk, payload),) = Broker().dequeue()
    row = OrmQ.objects.get()
    assert (row.pk, row.payload, row.key) == (pk, payload, board.queue)
    assert row.lock > timezone.now() + timedelta(seconds=Conf.RETRY - 60)
    assert Broker().dequeue() == []


def test_a_cluster_without_a_supervisor_uses_only_the_shared_queue(board, monkeypatch):
    async_task(broker.TEND_TASK, cluster=board.queue)
    async_task(broker.TEND_TASK)
    monkeypatch.delenv(VARIABLE)
    assert len(Broker().dequeue()) == 1
    assert Broker().dequeue() == []
    assert keys() == [board.queue, Conf.CLUSTER_NAME]


def test_tasks_of_a_dead_cluster_return_to_the_shared_queue(board):
    async_task(broker.TEND_TASK)
    assert Broker().dequeue()
    requeue_tasks(board)
    assert keys() == [Conf.CLUSTER_NAME]
    assert len(Broker().dequeue()) == 1


def test_only_the_channel_of_a_killed_supervisor_is_found_orphaned(board, tmp_path):
    (tmp_path / "up-killed").mkdir()
    (tmp_path / "up-killed" / "in-use").touch()
    assert [left.queue for left in SupervisorChannel.find_orphaned(tmp_path)] == ["up-killed"]


# --- when it hangs ---------------------------------------------------------------------------------------------------


def test_a_pulse_queues_one_tend_task_for_its_cluster(board, pulse):
    pulse()
    row = OrmQ.objects.get()
    assert row.key == board.pulse_queue
    assert (row.task["func"], row.task["args"]) == (broker.TEND_TASK, (board.queue,))
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


def test_a_cluster_that_ignores_a_pulse_with_an_idle_worker_is_replaced_once(board, pulse, replaced):
    sleepers = busy(board, 1)
    try:
        for _ in range(MAX_LATE_CHECKS):
            assert replaced == []
            pulse()
        pulse()
        assert len(replaced) == 1
    finally:
        _end(sleepers)


def test_a_pulse_with_a_lost_answer_is_repeated_once(pulse, replaced):
    pulse()
    lost = OrmQ.objects.get().pk
    while OrmQ.objects.get().pk == lost:
        pulse()
    OrmQ.objects.all().delete()  # This time the cluster's answer comes through.
    for _ in range(MAX_LATE_CHECKS):
        pulse()
    assert replaced == []


def test_a_cluster_with_only_busy_workers_is_not_replaced(board, pulse, replaced):
    sleepers = busy(board, 2)
    try:
        for _ in range(3 * MAX_LATE_CHECKS):
            pulse()
        assert replaced == []
    finally:
        _end(sleepers)
    assert board.count_busy() == 0, "the notices of workers that were killed do not count"


def test_database_errors_do_not_count_against_the_cluster(pulse, replaced, monkeypatch):
    for _ in range(MAX_LATE_CHECKS - 1):
        pulse()
    with monkeypatch.context() as away:
        away.setattr(pulse, "_check", lambda: (_ for _ in ()).throw(DatabaseError))
        with pytest.raises(DatabaseError):
            pulse()
    for _ in range(MAX_LATE_CHECKS - 1):
        pulse()
    assert replaced == []


def test_a_new_cluster_starts_without_late_checks(board, pulse, replaced):
    async_task(broker.TEND_TASK)
    Broker().dequeue()
    for _ in range(MAX_LATE_CHECKS - 1):
        pulse()
    pulse.reset()
    pulse()
    assert replaced == []
    assert keys() == [Conf.CLUSTER_NAME, board.pulse_queue]


def _end(sleepers):
    for sleeper in sleepers:
        sleeper.kill()
        sleeper.wait()


# --- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_stopping_drain_claims_no_more_trials_and_frees_its_queue_worker(board, run, monkeypatch):  # noqa: F811
    from runs_app.llm import gateway

    stop, is_told = Drain.stop, []

    def told(drain):
        is_told.append(drain)
        stop(drain)

    async def call(request):
        board.request_stop()
        async with asyncio.timeout(60):
            while not is_told:
                await asyncio.sleep(0.01)
        return reply()

    type(run).objects.filter(pk=run.pk).update(max_concurrency=1)
    monkeypatch.setattr(gateway, "call", call)
    monkeypatch.setattr(Drain, "stop", told)
    monkeypatch.setattr(gateway, "warm_up", lambda: None)
    assert tasks.drain() == 1
    run.refresh_from_db()
    assert (run.n_done, run.n_pending, run.n_running) == (1, 5, 0)
    assert tasks.drain() == 0, "none starts while the site stops"
    with tasks.drain_slot() as free:
        assert free
