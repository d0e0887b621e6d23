"""The task queue's broker for a cluster, and the health check with which `up` detects that its cluster hangs.

If an idle worker is killed, the whole cluster can hang without ending a process. Therefore the supervisor asks its own
cluster to run `maintain` every few seconds. The cluster hangs if such a request stays undone while a worker is idle.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django.db import DatabaseError, close_old_connections
from django.utils import timezone
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.signals import post_execute_in_worker, pre_execute
from django_q.signing import BadSignature, SignedPackage
from django_q.tasks import async_task

from runs_app.taskqueue.supervisor_channel import SupervisorChannel
from runs_app.taskqueue.task_payloads import check_task

logger = logging.getLogger("evalsite.queue")

MAINTENANCE_TASK = "runs_app.tasks.maintain"
PULSE_S = 10.0  # Time between two requests, if the first is done by then.
CHECK_S = 1.0
# Checks with an undone request and an idle worker after which the cluster counts as hung. Its start takes some checks.
MAX_LATE_CHECKS = 20


class Broker(ORM):  # type: ignore[misc]
    """A broker of the queue that all clusters share, and of the queues of the `up` that started this cluster.

    A claimed task moves to this cluster's queue, so that it can be requeued if the cluster dies. An unsigned task, or
    one with a function outside the list, is removed and never run.
    """

    def dequeue(self) -> list[tuple[int, str]]:
        """Return at most one task, locked for this cluster. If no task waits, return an empty list after a pause."""
        channel = SupervisorChannel.current()
        keys = [self.list_key, *([channel.queue, channel.pulse_queue] if channel else [])]
        waiting = self.get_connection().filter(key__in=keys, lock__lt=timezone.now()).order_by("pk")
        task = waiting.values_list("pk", "payload", "key", "lock").first()
        if task is None:
            time.sleep(Conf.POLL)
            return []
        pk, payload, key, lock = task
        own_key = channel.queue if channel and key == self.list_key else key
        if not OrmQ.objects.filter(pk=pk, lock=lock).update(key=own_key, lock=self.timeout(payload)):
            return []  # Another cluster claimed it first.
        return [(pk, payload)] if self._accepts(pk, payload) else []

    def _accepts(self, pk: int, payload: str) -> bool:
        """Return whether a task may run; remove it if not."""
        try:
            check_task(SignedPackage.loads(payload))
        except (BadSignature, TypeError, ValueError) as refusal:
            logger.error("task %s was refused and removed: %s", pk, refusal)
            self.fail(pk)
            return False
        return True


def requeue_tasks(channel: SupervisorChannel) -> None:
    """Return the tasks of a cluster, running or not, to the shared queue. Tasks must tolerate a second run."""
    OrmQ.objects.filter(key=channel.queue).update(key=Conf.CLUSTER_NAME, lock=timezone.now())
    OrmQ.objects.filter(key=channel.pulse_queue).delete()


def announce_busy_workers() -> None:
    """Make this process's workers report on the supervisor channel, if any, while they run a task."""
    channel = SupervisorChannel.current()
    if channel is None:
        return
    pre_execute.connect(lambda **_: channel.mark_busy(), weak=False, dispatch_uid="busy")
    post_execute_in_worker.connect(lambda **_: channel.mark_idle(), weak=False, dispatch_uid="idle")


class Pulse:
    """A periodic task of the supervisor: it asks the cluster to run `maintain`, and replaces a cluster that does not.

    All other periodic work is part of `maintain`, so this one check covers it too.
    """

    def __init__(self, channel: SupervisorChannel, workers: int, replace: Callable[[str], None]) -> None:
        self._channel, self._workers, self._replace = channel, workers, replace
        self._late = 0
        self._due = 0.0
        self._is_new = True

    def __call__(self) -> float:
        """Check once. Return the seconds until the next check."""
        close_old_connections()
        try:
            self._check()
        except DatabaseError:
            self._late = 0  # Without a database nothing works, so the cluster is not at fault.
            raise
        return CHECK_S

    def reset(self) -> None:
        """Reset the check before a cluster starts, and requeue the tasks of the previous cluster."""
        self._channel.clear_busy()
        self._channel.mark_started()
        self._is_new = True

    def _check(self) -> None:
        if self._is_new:
            requeue_tasks(self._channel)
            self._is_new, self._late, self._due = False, 0, 0.0
        request = OrmQ.objects.filter(key=self._channel.pulse_queue)
        if not request.exists():
            self._late = 0
            if time.monotonic() >= self._due:
                self._send_request()
        elif self._channel.is_starting():
            self._late = 0
        elif self._channel.count_busy() < self._workers:
            self._late += 1
            # The request may be done although the database was away and did not record it: send it again.
            if self._late == MAX_LATE_CHECKS // 2:
                request.delete()
                self._send_request()
        if self._late >= MAX_LATE_CHECKS:
            self._late = 0
            self._replace(f"has done nothing for {MAX_LATE_CHECKS} s with a worker idle")

    def _send_request(self) -> None:
        self._due = time.monotonic() + PULSE_S
        options = {"cluster": self._channel.pulse_queue, "save": False, "ack_failure": True}
        async_task(MAINTENANCE_TASK, self._channel.queue, q_options=options)
