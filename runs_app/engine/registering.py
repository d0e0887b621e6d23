"""A worker's row: who drains, where, in which version, and when it was last heard of."""

from __future__ import annotations

import os
import socket
import uuid

from django.db.models.functions import Now

from runs_app.models import Worker

VERSION = "0.1.0"


class Registration:
    """Made in the process that drains."""

    def __init__(self) -> None:
        host, pid = socket.gethostname(), os.getpid()
        worker = Worker.objects.create(name=f"{host}:{pid}:{uuid.uuid4().hex[:8]}", host=host, pid=pid, version=VERSION)
        self.worker_id: int = worker.pk
        self.name: str = worker.name

    def beat(self, in_flight: int, recorded: int) -> None:
        """The database's clock: a worker whose clock is off is as alive as any."""
        Worker.objects.filter(pk=self.worker_id).update(seen_at=Now(), in_flight=in_flight, recorded=recorded)

    def leave(self) -> None:
        Worker.objects.filter(pk=self.worker_id).update(seen_at=Now(), left_at=Now(), in_flight=0)
