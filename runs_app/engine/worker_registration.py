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

PACE_OVER_S = 60.0  # The displayed rate is that of the last minute.


class WorkerRegistration:
    """The row of a worker, created in the worker's own process.

    Raise SchemaMismatch if its code does not fit the database.
    """

    def __init__(self) -> None:
        check_schema()
        host, pid = socket.gethostname(), os.getpid()
        name = f"{host}:{pid}:{uuid.uuid4().hex[:8]}"
        worker = Worker.objects.create(name=name, host=host, pid=pid, version=get_version())
        self.worker_id: int = worker.pk
        self.name: str = worker.name
        self._counts = deque([(time.monotonic(), 0)])

    def beat(self, in_flight: int, recorded: int) -> None:
        """Write a heartbeat with the database's clock, so that a worker with a wrong clock counts as alive.

        Raise SchemaMismatch, after writing, if the database was migrated to another version meanwhile.
        """
        Worker.objects.filter(pk=self.worker_id).update(
            seen_at=Now(), in_flight=in_flight, recorded=recorded, per_minute=self._pace(recorded)
        )
        check_schema()

    def leave(self) -> None:
        Worker.objects.filter(pk=self.worker_id).update(seen_at=Now(), left_at=Now(), in_flight=0, per_minute=0)

    def _pace(self, recorded: int) -> float:
        """Return results per minute since the oldest heartbeat of the last minute."""
        now = time.monotonic()
        self._counts.append((now, recorded))
        while len(self._counts) > 2 and now - self._counts[1][0] >= PACE_OVER_S:
            self._counts.popleft()
        since, before = self._counts[0]
        return 60 * (recorded - before) / (now - since) if now > since else 0.0
