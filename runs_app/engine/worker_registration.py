"""A worker's row: its host, process, version, rate, and the time of its last heartbeat."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections import deque

from django.db.models.functions import Now

from evalsite.lib.ops.versions import check_schema, get_version
from runs_app.models import Worker

RATE_WINDOW_S = 60.0


class WorkerRegistration:
    """A worker's row, created in the worker's own process.

    Raise SchemaMismatch if the code does not fit the database.
    """

    def __init__(self) -> None:
        check_schema()
        host, pid = socket.gethostname(), os.getpid()
        name = f"{host}:{pid}:{uuid.uuid4().hex[:8]}"
        worker = Worker.objects.create(name=name, host=host, pid=pid, version=get_version())
        self.worker_id: int = worker.pk
        self.name: str = worker.name
        self._counts = deque([(time.monotonic(), 0)])

    def send_heartbeat(self, in_flight: int, recorded: int) -> None:
        """Write a heartbeat with the database's clock, so that a worker with a wrong clock counts as alive.

        Raise SchemaMismatch, after writing, if the database was migrated to another version meanwhile.
        """
        Worker.objects.filter(pk=self.worker_id).update(
            seen_at=Now(), in_flight=in_flight, recorded=recorded, per_minute=self._compute_rate(recorded)
        )
        check_schema()

    def leave(self) -> None:
        """Record that the worker ended."""
        Worker.objects.filter(pk=self.worker_id).update(seen_at=Now(), stopped_at=Now(), in_flight=0, per_minute=0)

    def _compute_rate(self, recorded: int) -> float:
        """Return results per minute since the oldest heartbeat of the last minute."""
        now = time.monotonic()
        self._counts.append((now, recorded))
        while len(self._counts) > 2 and now - self._counts[1][0] >= RATE_WINDOW_S:
            self._counts.popleft()
        then, recorded_then = self._counts[0]
        return 60 * (recorded - recorded_then) / (now - then) if now > then else 0.0
