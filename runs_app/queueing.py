"""The task queue from both ends: what a cluster takes from it, and how `up` knows that its cluster is well.

Killing an idle worker of a cluster can hang all of it without ending a process. So the supervisor asks its own cluster,
and no other, to tend the work every few seconds; a request that is neither done nor waiting for a busy worker tells
that the cluster hangs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from django.db import DatabaseError, close_old_connections
from django.utils import timezone
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.signals import post_execute_in_worker, pre_execute
from django_q.tasks import async_task

from runs_app.noticeboard import Noticeboard

TEND = "runs_app.tasks.tend"
PULSE_S = 10.0  # Between a request that was done and the next.
LOOK_S = 1.0
LATE_LOOKS = 20  # Looks at an undone request while a worker is idle, after which the cluster hangs. A start takes some.


class Broker(ORM):  # type: ignore[misc]
    """Takes from the queue that all clusters share, and from those of the `up` that started this cluster."""

    def dequeue(self) -> list[tuple[int, str]]:
        """At most one task, locked for this cluster; none after a pause where none waits."""
        found = self._first()
        if found is None:
            time.sleep(Conf.POLL)
            return []
        pk, payload, lock = found
        taken = OrmQ.objects.filter(pk=pk, lock=lock).update(lock=self.timeout(payload))
        return [(pk, payload)] if taken else []  # Where not taken, another cluster was quicker.

    def _first(self) -> tuple[int, str, datetime] | None:
        waiting = self.get_connection().filter(key__in=self._keys(), lock__lt=timezone.now())
        first: tuple[int, str, datetime] | None = waiting.order_by("pk").values_list("pk", "payload", "lock").first()
        return first

    def _keys(self) -> list[str]:
        board = Noticeboard.here()
        return [self.list_key, *([board.queue, board.pulse_queue] if board else [])]


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

    def __call__(self) -> float:
        """Look once; seconds until the next look."""
        close_old_connections()
        try:
            self._look()
        except DatabaseError:
            self._late = 0  # Nothing can be done without a database: that is not the cluster's fault.
            raise
        return LOOK_S

    def forget(self) -> None:
        """A new cluster starts with nothing to do, and nothing held against it."""
        self._late = 0
        self._board.clear()
        OrmQ.objects.filter(key__in=[self._board.queue, self._board.pulse_queue]).delete()

    def _look(self) -> None:
        if not OrmQ.objects.filter(key=self._board.pulse_queue).exists():
            self._late = 0
            self._ask()
        elif self._board.busy() < self._workers:
            self._late += 1
        if self._late >= LATE_LOOKS:
            self._late = 0
            self._replace(f"has done nothing for {LATE_LOOKS} s with a worker idle")

    def _ask(self) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + PULSE_S
            options = {"cluster": self._board.pulse_queue, "save": False, "ack_failure": True}
            async_task(TEND, self._board.queue, q_options=options)
