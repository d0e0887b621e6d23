"""The task queue's broker for a cluster, and the health check by which `up` finds out that its cluster hangs.

Killing an idle worker of a cluster can hang the whole cluster without ending a process. So the supervisor asks its own
cluster, and no other, to run `tend` every few seconds. The cluster hangs if such a request stays undone while a worker
is idle.
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

TEND_TASK = "runs_app.tasks.tend"
PULSE_S = 10.0  # Between one request and the next, if the first is done by then.
CHECK_S = 1.0
# Looks at an undone request while a worker is idle, after which the cluster hangs. Its start takes some of them.
MAX_LATE_CHECKS = 20


class Broker(ORM):  # type: ignore[misc]
    """A broker of the queue that all clusters share, and of the queues of the `up` that started this cluster.

    A task that is taken moves to this cluster's queue, so that its tasks can be found if it dies. A task that is not
    signed, or that calls a function outside the list, is removed and never run.
    """

    def dequeue(self) -> list[tuple[int, str]]:
        """Return at most one task, locked for this cluster. If none waits, return none after a pause."""
        channel = SupervisorChannel.current()
        keys = [self.list_key, *([channel.queue, channel.pulse_queue] if channel else [])]
        waiting = self.get_connection().filter(key__in=keys, lock__lt=timezone.now()).order_by("pk")
        found = waiting.values_list("pk", "payload", "key", "lock").first()
        if found is None:
            time.sleep(Conf.POLL)
            return []
        pk, payload, key, lock = found
        own = channel.queue if channel and key == self.list_key else key
        taken = OrmQ.objects.filter(pk=pk, lock=lock).update(key=own, lock=self.timeout(payload))
        if not taken:
            return []  # Another cluster was quicker.
        return [(pk, payload)] if self._accepts(pk, payload) else []

    def _accepts(self, pk: int, payload: str) -> bool:
        """Return whether a task may run; remove it if not."""
        try:
            check_task(SignedPackage.loads(payload))
        except (BadSignature, TypeError, ValueError) as refusal:
            logger.error("task %s is refused and removed: %s", pk, refusal)
            self.fail(pk)
            return False
        return True


def requeue_tasks(channel: SupervisorChannel) -> None:
    """Give the tasks of a cluster, running or not, back to the shared queue. All tasks may run twice."""
    OrmQ.objects.filter(key=channel.queue).update(key=Conf.CLUSTER_NAME, lock=timezone.now())
    OrmQ.objects.filter(key=channel.pulse_queue).delete()


def announce_busy_workers() -> None:
    """Make this process's workers report on the supervisor channel while they run a task, if there is one."""
    channel = SupervisorChannel.current()
    if channel is None:
        return
    pre_execute.connect(lambda **_: channel.mark_busy(), weak=False, dispatch_uid="busy")
    post_execute_in_worker.connect(lambda **_: channel.mark_idle(), weak=False, dispatch_uid="idle")


class Pulse:
    """A periodic task of the supervisor: ask the cluster to run `tend`, and have the cluster replaced if it does not.

    Everything else that must be done every few seconds is part of `tend`. One mechanism thus shows that all of it is
    done.
    """

    def __init__(self, channel: SupervisorChannel, workers: int, replace: Callable[[str], None]) -> None:
        self._channel, self._workers, self._replace = channel, workers, replace
        self._late = 0
        self._due = 0.0
        self._is_new = True

    def __call__(self) -> float:
        """Look once. Return the seconds until the next look."""
        close_old_connections()
        try:
            self._check()
        except DatabaseError:
            self._late = 0  # Nothing works without a database, so this is not the cluster's fault.
            raise
        return CHECK_S

    def reset(self) -> None:
        """Reset the check before a cluster starts. The tasks of the cluster before it can be taken again."""
        self._channel.clear_busy()
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
        elif self._channel.count_busy() < self._workers:
            self._late += 1
            # The request may be done, but the database was away and did not note it: ask again.
            if self._late == MAX_LATE_CHECKS // 2:
                request.delete()
                self._send_request()
        if self._late >= MAX_LATE_CHECKS:
            self._late = 0
            self._replace(f"has done nothing for {MAX_LATE_CHECKS} s with a worker idle")

    def _send_request(self) -> None:
        self._due = time.monotonic() + PULSE_S
        options = {"cluster": self._channel.pulse_queue, "save": False, "ack_failure": True}
        async_task(TEND_TASK, self._channel.queue, q_options=options)
