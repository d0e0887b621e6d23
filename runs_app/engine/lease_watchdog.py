"""A thread that renews a worker's leases while the worker is blocked, for at most three lease periods.

A worker renews its leases on its event loop, through its one database thread. Either may be blocked for longer than a
lease, by a long answer, a slow query or a lock. This thread waits for neither. It has its own connection, open only
while it renews. It cannot help if the whole process is stopped (SIGSTOP, code that holds the interpreter lock). From
outside, such a process looks dead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.db import DatabaseError, connection

from runs_app.engine.leases import renew_worker_leases

logger = logging.getLogger("evalsite.drain")

CHECK_S = 1.0  # The longest time between two checks of the last renewal.
MAX_SILENT_LEASES = 3  # Lease periods without a heartbeat, after which the worker loses its claims.


class LeaseWatchdog:
    """A thread that renews a worker's leases after half a lease without a `heartbeat`.

    `lease_s` returns the shortest lease of the worker's claims, in seconds. The thread calls it.
    """

    def __init__(self, worker_id: int, lease_s: Callable[[], float]) -> None:
        self.worker_id = worker_id
        self.lease_s = lease_s
        self._last_heartbeat = self._renewed = time.monotonic()
        self._gave_up = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lease-watchdog", daemon=True)

    def start(self) -> None:
        self.heartbeat()
        self._thread.start()

    def heartbeat(self) -> None:
        """Report that the worker has renewed its leases."""
        self._last_heartbeat = time.monotonic()

    def stop(self) -> None:
        """Stop the thread. Wait at most a few seconds, because its database may block it."""
        self._ended.set()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        while not self._ended.wait(min(CHECK_S, self.lease_s() / 8)):
            now, lease = time.monotonic(), self.lease_s()
            silent = now - self._last_heartbeat
            if now - max(self._last_heartbeat, self._renewed) < lease / 2:
                continue
            if silent <= MAX_SILENT_LEASES * lease:
                self._gave_up = False
                self._renew(silent)
            elif not self._gave_up:
                self._gave_up = True
                logger.error("the event loop was blocked for %.0f s: its leases expire now", silent)

    def _renew(self, silent: float) -> None:
        try:
            if renewed := renew_worker_leases(self.worker_id):
                logger.warning("the event loop is blocked for %.0f s: the watchdog renewed %s leases", silent, renewed)
            self._renewed = time.monotonic()
        except DatabaseError as error:  # The database is unreachable or overloaded: the next check tries again.
            logger.warning("the watchdog could not renew the leases: %s", type(error).__name__)
        finally:
            connection.close()
