"""The health of the workers, for site monitoring: counts and ages from one cheap query."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

ALIVE_S = 60  # A worker without a heartbeat for longer is silent, as on the workers page.
STALE_WORKERS_S = 120  # An active run may have no worker for some seconds between two drains.
STALE_TASKS_S = 300  # Earlier tasks in the queue may each take three minutes.

HEALTH = f"""
SELECT
    (SELECT count(*) FROM runs_app_worker
        WHERE stopped_at IS NULL AND seen_at >= now() - interval '{ALIVE_S} seconds'),
    (SELECT extract(epoch FROM now() - max(seen_at)) FROM runs_app_worker),
    (SELECT extract(epoch FROM now() - min(lock)) FROM django_q_ormq WHERE lock <= now()),
    EXISTS (SELECT FROM runs_app_worker
        WHERE stopped_at IS NULL AND seen_at >= now() - interval '{ALIVE_S} seconds' AND trouble <> ''),
    EXISTS (SELECT FROM runs_app_run WHERE status = 'running' AND n_pending + n_running > 0 AND NOT is_batched)
"""  # noqa: S608 - built from the numbers above


@dataclass(frozen=True)
class WorkerHealth:
    """The number of live workers and the age of the oldest waiting task."""

    alive: int
    seen_s: float | None  # Seconds since the last heartbeat of any worker; None without a heartbeat.
    oldest_waiting_task_s: float | None  # Seconds; None if no task waits.
    is_blocked: bool  # A worker cannot record, because the database has no space or other resources left.
    calls_wait: bool

    @property
    def is_stale(self) -> bool:
        """Return whether calls wait without a worker, or a task waits longer than earlier tasks can take."""
        is_silent = self.seen_s is None or self.seen_s > STALE_WORKERS_S
        return (self.calls_wait and is_silent) or (self.oldest_waiting_task_s or 0) > STALE_TASKS_S

    @property
    def state(self) -> str:
        """Return `ok`, or why no work is done: `blocked` by the database, or `stale`."""
        return "blocked" if self.is_blocked else "stale" if self.is_stale else "ok"


def measure_worker_health() -> WorkerHealth:
    """Return the health, by the database's clock. Raise DatabaseError if the database does not answer."""
    with connection.cursor() as cursor:
        cursor.execute(HEALTH)
        alive, seen, oldest, is_blocked, calls_wait = cursor.fetchone()
    seen, oldest = (None if seconds is None else float(seconds) for seconds in (seen, oldest))
    return WorkerHealth(alive, seen, oldest, is_blocked, calls_wait)
