"""Leases: their renewal, and the sweep that releases claims and preflights of silent workers when a lease ends.

A worker renews its leases on its event loop. While the loop is blocked, a watchdog thread renews them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection, transaction

from evalsite.lib.sql import fetch_rows
from runs_app.bounds import BOUNDS
from runs_app.engine import preflight
from runs_app.engine.counters import CounterDeltas, CounterKeys, lock_counter_rows
from runs_app.engine.recorder import count_attempt, insert_attempts
from runs_app.engine.run_lifecycle import finish_runs
from runs_app.llm.calls import LOST, SILENT
from runs_app.models import Attempt, Trial

logger = logging.getLogger("evalsite.drain")

# In seconds. A lease that PostgreSQL cannot add to a time must not stop the sweep and the renewals of other runs.
LEASE_S = f"greatest(1, least({BOUNDS['experiment']['lease_s'].high}, e.lease_s))"

# While the database server was down, no worker could renew a lease. So leases of earlier claims last at least one
# period from the server's start.
# The parameter is the time of a restore, or NULL: see `sweep_expired`.
LEASE_ENDED = f"""t.status = 'running' AND t.lease_until IS NOT NULL
    AND (t.claimed_at < %s::timestamptz OR (t.lease_until < clock_timestamp()
        AND (t.claimed_at > pg_postmaster_start_time()
            OR clock_timestamp() > pg_postmaster_start_time() + {LEASE_S} * interval '1 second')))"""

# Claims are found through the runs that have some, because an index on leases would cost each claim an entry. Batches
# hold many trials without a lease, so their runs are skipped unless their endpoint has calls in flight. The planner
# cannot merge an aggregate into the join, so it looks up the running trials run by run.
RUNS_WITH_EXPIRED_LEASES = f"""
SELECT r.id, r.experiment_id, m.endpoint_id, p.is_free
FROM runs_app_run r
JOIN runs_app_experiment e ON e.id = r.experiment_id
JOIN runs_app_condition c ON c.id = r.condition_id
JOIN runs_app_languagemodel m ON m.id = c.model_id
JOIN runs_app_endpoint p ON p.id = m.endpoint_id
CROSS JOIN LATERAL (SELECT count(*) AS n FROM runs_app_trial t WHERE t.run_id = r.id AND {LEASE_ENDED}) ended
WHERE r.n_running > 0 AND (NOT r.is_batched OR p.in_flight > 0) AND ended.n > 0
"""  # noqa: S608 - a constant

# SKIP LOCKED: a worker that is writing its claim now is not silent, so the sweep does not wait for it. A trial without
# an item is a call of another program, which no worker can repeat.
RECLAIM = f"""
WITH stale AS (
    SELECT t.id, t.token, t.worker_id, t.reserved_usd,
        CASE WHEN r.status = 'cancelled' THEN 'cancelled'
             WHEN t.attempts >= e.max_attempts OR t.item_id IS NULL THEN 'failed' ELSE 'pending' END AS becomes
    FROM runs_app_trial t
    JOIN runs_app_run r ON r.id = t.run_id
    JOIN runs_app_experiment e ON e.id = r.experiment_id
    WHERE {LEASE_ENDED} AND t.run_id = %s
    ORDER BY t.id LIMIT 1000 FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE runs_app_trial t SET status = stale.becomes, token = NULL, lease_until = NULL, reserved_usd = 0,
    error_class = %s, error = %s,
    completed_at = CASE WHEN stale.becomes = 'failed' THEN clock_timestamp() END
FROM stale WHERE t.id = stale.id
RETURNING t.id, stale.token, stale.worker_id, stale.reserved_usd, stale.becomes
"""  # noqa: S608 - a constant


def sweep_expired(restored_at: datetime | None = None) -> int:
    """Release every claim whose lease has ended by the database's clock. Return how many there were.

    After a restore, also release all claims that are older than the restore, because their workers have another
    database.
    """
    runs = [(CounterKeys(*keys), is_free) for *keys, is_free in fetch_rows(RUNS_WITH_EXPIRED_LEASES, [restored_at])]
    return sum(_sweep_run(*run, restored_at) for run in runs) + preflight.sweep_preflights()


def _sweep_run(counter_keys: CounterKeys, is_free: bool, restored_at: datetime | None) -> int:
    with transaction.atomic():
        lock_counter_rows({counter_keys})
        reclaimed = fetch_rows(RECLAIM, [restored_at, counter_keys.run_id, LOST, SILENT])
        if not reclaimed:
            return 0
        deltas = CounterDeltas()
        delta = deltas.for_run(counter_keys)
        attempts = [_build_lost_attempt(counter_keys, *row[:4], is_free=is_free) for row in reclaimed]
        for *_, reserved, becomes in reclaimed:
            delta.move("running", becomes)
            delta.reserved_usd -= reserved
        insert_attempts(attempts)
        for row in attempts:
            count_attempt(row, delta)
        deltas.write_changes()
        finish_runs({counter_keys.run_id})
    return len(reclaimed)


def _build_lost_attempt(
    counter_keys: CounterKeys,
    trial_id: int,
    token: UUID,
    worker_id: int | None,
    reserved_usd: Decimal,
    *,
    is_free: bool,
) -> dict[str, Any]:
    """Return the attempt row of a lost call.

    The provider may have billed it, so its cost is unknown. At a free endpoint it is 0.
    """
    return {
        "trial": trial_id,
        "run": counter_keys.run_id,
        "token": token,
        "worker": worker_id,
        "call": 0,
        "outcome": Attempt.Outcome.LOST,
        "cost_usd": 0 if is_free and not reserved_usd else None,
        "kept_usd": reserved_usd or None,
        "error_class": LOST,
        "error": SILENT,
    }


RENEW = f"""
UPDATE runs_app_trial t SET lease_until = clock_timestamp() + {LEASE_S} * interval '1 second'
FROM runs_app_run r JOIN runs_app_experiment e ON e.id = r.experiment_id
WHERE r.id = t.run_id AND t.id = ANY(%s) AND t.token = ANY(%s) AND t.status = '{Trial.Status.RUNNING}'
"""  # noqa: S608 - a constant


def renew_leases(trial_ids: list[int], tokens: list[UUID]) -> int:
    """Extend the leases of the claims that are still held. Return how many there were."""
    if not trial_ids:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(RENEW, [trial_ids, tokens])
        return int(cursor.rowcount)


# SKIP LOCKED: a claim that is being written now has its answer, so the watchdog must not wait for it. OFFSET 0 keeps
# the planner from joining all trials, as the aggregate above does.
RENEW_ALL = f"""
WITH held AS (
    SELECT own.id, {LEASE_S} AS lease_s
    FROM runs_app_run r JOIN runs_app_experiment e ON e.id = r.experiment_id CROSS JOIN LATERAL (
        SELECT t.id FROM runs_app_trial t
        WHERE t.run_id = r.id AND t.status = '{Trial.Status.RUNNING}' AND t.worker_id = %s AND t.lease_until IS NOT NULL
        OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED
    ) own
    WHERE r.n_running > 0
)
UPDATE runs_app_trial t SET lease_until = clock_timestamp() + held.lease_s * interval '1 second'
FROM held WHERE t.id = held.id
"""  # noqa: S608 - a constant


def renew_worker_leases(worker_id: int) -> int:
    """Extend the leases of all claims of this worker, even if it has not received them yet. Return how many."""
    with connection.cursor() as cursor:
        cursor.execute(RENEW_ALL, [worker_id])
        return int(cursor.rowcount)


CHECK_S = 1.0  # The longest time between two checks of the last renewal.
MAX_SILENT_LEASES = 3  # Lease periods without a heartbeat, after which the worker loses its claims.


class LeaseWatchdog:
    """A thread that renews a worker's leases after half a lease without a `heartbeat`, for at most three lease periods.

    A worker renews its leases on its event loop, through its one database thread. Either may be blocked for longer than
    a lease, by a long answer, a slow query or a lock. This thread waits for neither. It has its own connection, open
    only while it renews. It cannot help if the whole process is stopped (SIGSTOP, code that holds the interpreter
    lock). From outside, such a process looks dead.

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
