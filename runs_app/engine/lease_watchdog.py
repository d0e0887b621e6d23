"""Leases of a drain that stands still are renewed in its place: for a while, since what hangs for good must give back.

A drain renews its leases on its event loop, through its one database thread. Either may be busy for longer than that
lasts: with an answer that takes long to read, a slow query, a lock that others hold. This thread waits for neither: it
has a connection of its own, open only while it helps. It is of no help where the whole process stands still (SIGSTOP,
code that keeps the interpreter to itself), which nobody can tell from a process that died.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.db import DatabaseError, connection

from runs_app.engine.leases import renew_worker_leases

logger = logging.getLogger("evalsite.drain")

LOOK_S = 1.0  # At most so long between two looks at when the drain last renewed.
PATIENCE = 3  # Leases without a sign of the drain, after which it counts as hung and its claims return.


class LeaseWatchdog:
    """Between `begin` and `end`: whenever the drain gave no `sign` for half a lease, its claims are renewed from here.

    `lease_s` says the shortest lease, in seconds, of what the drain holds; it is asked from another thread.
    """

    def __init__(self, worker_id: int, lease_s: Callable[[], float]) -> None:
        self.worker_id = worker_id
        self.lease_s = lease_s
        self._signed = self._renewed = time.monotonic()
        self._gave_up = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="drain-stand-in", daemon=True)

    def begin(self) -> None:
        self.sign()
        self._thread.start()

    def sign(self) -> None:
        """The drain renewed its leases itself: it is well."""
        self._signed = time.monotonic()

    def end(self) -> None:
        """Returns when the thread is through, or after a few seconds if its database keeps it waiting."""
        self._ended.set()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        while not self._ended.wait(min(LOOK_S, self.lease_s() / 8)):
            now, lease = time.monotonic(), self.lease_s()
            silent = now - self._signed
            if now - max(self._signed, self._renewed) < lease / 2:
                continue
            if silent <= PATIENCE * lease:
                self._gave_up = False
                self._renew(silent)
            elif not self._gave_up:
                self._gave_up = True
                logger.error("no sign of the drain for %.0f s: its claims return", silent)

    def _renew(self, silent: float) -> None:
        try:
            if renewed := renew_worker_leases(self.worker_id):
                logger.warning("no sign of the drain for %.0f s: %s leases renewed in its place", silent, renewed)
            self._renewed = time.monotonic()
        except DatabaseError as error:  # Away or overloaded: tried again at the next look.
            logger.warning("no leases renewed in the place of a drain that stands still: %s", type(error).__name__)
        finally:
            connection.close()
