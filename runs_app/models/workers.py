"""Workers: processes that make the calls of trials, on any host."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from django.db import models

from evalsite.lib.constraints import constrain_numbers

HEARTBEAT_TIMEOUT = timedelta(seconds=60)


@constrain_numbers()
class Worker(models.Model):
    """A worker process and the time of its last heartbeat."""

    name = models.CharField(max_length=200, unique=True, help_text="host:pid:start")
    host = models.CharField(max_length=120)
    pid = models.IntegerField()
    version = models.CharField(max_length=40, blank=True)
    in_flight = models.IntegerField(default=0)
    recorded = models.BigIntegerField(default=0, help_text="Results recorded since the worker started")
    per_minute = models.FloatField(default=0, help_text="Results recorded in the last minute")
    trouble = models.CharField(max_length=200, blank=True, help_text="Why the database records no results now")
    is_gateway = models.BooleanField(default=False, help_text="Records the calls of programs, and claims no trials")
    started_at = models.DateTimeField(auto_now_add=True)
    seen_at = models.DateTimeField(auto_now_add=True, db_index=True)
    stopped_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-seen_at"]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"

    def find_state(self, now: datetime) -> Literal["alive", "silent", "stopped"]:
        """Return the state of a worker. A worker without a heartbeat for a minute is silent."""
        if self.stopped_at is not None:
            return "stopped"
        return "alive" if self.seen_at >= now - HEARTBEAT_TIMEOUT else "silent"
