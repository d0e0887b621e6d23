"""The task queue from both ends: what a cluster takes from it, and how `up` knows that its cluster is well.

Killing an idle worker of a cluster can hang all of it without ending a process. So the supervisor asks its own cluster,
and no other, to tend the work every few seconds; a request that is neither done nor waiting for a busy worker tells
that the cluster hangs.
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

from runs_app.taskqueue.supervisor_channel import Noticeboard
from runs_app.taskqueue.task_payloads import check_task

logger = logging.getLogger("evalsite.queue")

TEND = "runs_app.tasks.tend"
PULSE_S = 10.0  # Between a request that was done and the next.
LOOK_S = 1.0
LATE_LOOKS = 20  # Looks at an undone request while a worker is idle, after which the cluster hangs. A start takes some.


class Broker(ORM):  # type: ignore[misc]
    """Takes from the queue that all clusters share, and from those of the `up` that started this cluster.

    A task that is taken moves to this cluster's queue: if the cluster dies, it is known what it had. A task that is
    not signed, or that calls a function outside the list, is removed and never run.
    """

    def dequeue(self) -> list[tuple[int, str]]:
        """At most one task, locked for this cluster; none after a pause where none waits."""
        board = Noticeboard.here()
        keys = [self.list_key, *([board.queue, board.pulse_queue] if board else [])]
        waiting = self.get_connection().filter(key__in=keys, lock__lt=timezone.now()).order_by("pk")
        found = waiting.values_list("pk", "payload", "key", "lock").first()
        if found is None:
            time.sleep(Conf.POLL)
            return []
        pk, payload, key, lock = found
        own = board.queue if board and key == self.list_key else key
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


def hand_back(board: Noticeboard) -> None:
    """Give what a cluster had taken or was yet to take to whoever comes first. All tasks may run twice."""
    OrmQ.objects.filter(key=board.queue).update(key=Conf.CLUSTER_NAME, lock=timezone.now())
    OrmQ.objects.filter(key=board.pulse_queue).delete()


def announce_busy_workers() -> None:
    """Have this process's workers say on the noticeboard when they do a task, if there is one."""
    board = Noticeboard.here()
    if board is None:
        return
    pre_execute.connect(lambda **_: board.mark_busy(), weak=False, dispatch_uid="busy")
    post_execute_in_worker.connect(lambda **_: board.mark_idle(), weak=False, dispatch_uid="idle")


class Pulse:
    """A chore of the supervisor: ask the cluster to tend the work, and have it replaced when it does not.

    Whatever else is to be done every few seconds is done by `tend`, so that one mechanism shows that all of it is.
    """

    def __init__(self, board: Noticeboard, workers: int, replace: Callable[[str], None]) -> None:
        self._board, self._workers, self._replace = board, workers, replace
        self._late = 0
        self._due = 0.0
        self._is_new = True

    def __call__(self) -> float:
        """Look once; seconds until the next look."""
        close_old_connections()
        try:
            self._look()
        except DatabaseError:
            self._late = 0  # Nothing can be done without a database: that is not the cluster's fault.
            raise
        return LOOK_S

    def start_anew(self) -> None:
        """Before a cluster starts: nothing is held against it, and what the one before it had is there to be taken."""
        self._board.forget_busy()
        self._is_new = True

    def _look(self) -> None:
        if self._is_new:
            hand_back(self._board)
            self._is_new, self._late, self._due = False, 0, 0.0
        request = OrmQ.objects.filter(key=self._board.pulse_queue)
        if not request.exists():
            self._late = 0
            if time.monotonic() >= self._due:
                self._ask()
        elif self._board.busy() < self._workers:
            self._late += 1
            if self._late == LATE_LOOKS // 2:  # Done, maybe, but a database that was away took no notice: ask again.
                request.delete()
                self._ask()
        if self._late >= LATE_LOOKS:
            self._late = 0
            self._replace(f"has done nothing for {LATE_LOOKS} s with a worker idle")

    def _ask(self) -> None:
        self._due = time.monotonic() + PULSE_S
        options = {"cluster": self._board.pulse_queue, "save": False, "ack_failure": True}
        async_task(TEND, self._board.queue, q_options=options)
