"""A worker's row: its host, process, version, rate, and the time of its last heartbeat."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections import deque
from contextlib import suppress
from typing import Any

from django.db import DatabaseError
from django.db.models.functions import Now

from evalsite.lib.ops.connection_pooler import refuse_transaction_pooling
from evalsite.lib.ops.versions import check_schema, get_version
from runs_app.models import Worker

RATE_WINDOW_S = 60.0
TROUBLE_S = 3.0  # A worker tries again each second, so after this time the database works again.
TROUBLE_LENGTH = 200


class WorkerRegistration:
    """A worker's row, created in the worker's own process.

    Raise SchemaMismatch if the code does not fit the database, and SettingError if its sessions are shared.
    """

    def __init__(self) -> None:
        refuse_transaction_pooling()
        check_schema()
        host, pid = socket.gethostname(), os.getpid()
        name = f"{host}:{pid}:{uuid.uuid4().hex[:8]}"
        worker = Worker.objects.create(name=name, host=host, pid=pid, version=get_version())
        self.worker_id: int = worker.pk
        self.name: str = worker.name
        self._counts = deque([(time.monotonic(), 0)])
        self._trouble = ""
        self._troubled_at = 0.0

    def send_heartbeat(self, in_flight: int, recorded: int) -> None:
        """Write a heartbeat with the database's clock, so that a worker with a wrong clock counts as alive.

        Raise SchemaMismatch, after writing, if the database was migrated to another version meanwhile.
        """
        if time.monotonic() - self._troubled_at > TROUBLE_S:
            self._trouble = ""
        Worker.objects.filter(pk=self.worker_id).update(
            seen_at=Now(),
            in_flight=in_flight,
            recorded=recorded,
            per_minute=self._compute_rate(recorded),
            trouble=self._trouble,
        )
        check_schema()

    def note_trouble(self, trouble: str) -> None:
        """Store why the database records nothing now, for the health check and the progress page.

        A full disk often still takes this small change, which needs no new page. If not, the heartbeats stop too.
        """
        self._trouble, self._troubled_at = trouble[:TROUBLE_LENGTH], time.monotonic()
        with suppress(DatabaseError):
            Worker.objects.filter(pk=self.worker_id).update(seen_at=Now(), trouble=self._trouble)

    def leave(self) -> None:
        """Record that the worker ended."""
        ended: dict[str, Any] = {"in_flight": 0, "per_minute": 0, "trouble": ""}
        Worker.objects.filter(pk=self.worker_id).update(seen_at=Now(), stopped_at=Now(), **ended)

    def _compute_rate(self, recorded: int) -> float:
        """Return results per minute since the oldest heartbeat of the last minute."""
        now = time.monotonic()
        self._counts.append((now, recorded))
        while len(self._counts) > 2 and now - self._counts[1][0] >= RATE_WINDOW_S:
            self._counts.popleft()
        then, recorded_then = self._counts[0]
        return 60 * (recorded - recorded_then) / (now - then) if now > then else 0.0
