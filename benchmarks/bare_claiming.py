"""Claim and record in bare SQL: the best rate of this server with the minimum that admission needs, as a reference.

The tables have three to ten columns. One transaction locks the endpoint and the run, reads the free capacity, claims a
batch and reserves its cost. Another writes answers, attempts and counters. Both commits are synchronous.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import psycopg

TABLES = """
CREATE TABLE bare_endpoint (id int PRIMARY KEY, free int, in_flight int DEFAULT 0);
CREATE TABLE bare_run (id int PRIMARY KEY, budget numeric, reserved numeric DEFAULT 0, spent numeric DEFAULT 0,
    n_running int DEFAULT 0, n_done int DEFAULT 0);
CREATE TABLE bare_trial (id bigint PRIMARY KEY, run_id int, sample_idx int, item_id int, status text DEFAULT 'pending',
    attempts int DEFAULT 0, token uuid, lease_until timestamptz, answer text, completed_at timestamptz);
CREATE TABLE bare_attempt (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, trial_id bigint, token uuid,
    cost_usd numeric, UNIQUE (trial_id, token));
INSERT INTO bare_endpoint VALUES (1, 100000);
INSERT INTO bare_run VALUES (1, 1000000);
INSERT INTO bare_trial (id, run_id, sample_idx, item_id)
    SELECT n, 1, n / 1000, n %% 1000 FROM generate_series(1, %(trials)s) n;
CREATE INDEX bare_claimable ON bare_trial (run_id, attempts, sample_idx, item_id) WHERE status = 'pending';
CREATE INDEX bare_leases ON bare_trial (lease_until) WHERE status = 'running';
"""
LOCK = """SELECT least(p.free - p.in_flight, (r.budget - r.reserved - r.spent) / 0.001)
    FROM bare_endpoint p, bare_run r WHERE p.id = 1 AND r.id = 1 FOR UPDATE"""
CLAIM = """UPDATE bare_trial SET status = 'running', attempts = attempts + 1, token = %s,
        lease_until = clock_timestamp() + interval '2 minutes'
    WHERE id = ANY(ARRAY(SELECT id FROM bare_trial WHERE run_id = 1 AND status = 'pending'
        ORDER BY attempts, sample_idx, item_id LIMIT %s FOR UPDATE SKIP LOCKED)) RETURNING id"""
RESERVE = """WITH e AS (UPDATE bare_endpoint SET in_flight = in_flight + %(n)s WHERE id = 1)
    UPDATE bare_run SET reserved = reserved + 0.001 * %(n)s, n_running = n_running + %(n)s WHERE id = 1"""
WRITE = """UPDATE bare_trial SET status = 'done', token = NULL, lease_until = NULL, answer = 'four',
        completed_at = clock_timestamp() WHERE id = ANY(%s) AND token = %s"""
CALLS = "INSERT INTO bare_attempt (trial_id, token, cost_usd) SELECT unnest(%s::bigint[]), %s, 0.00001"
# The endpoint first: all locks are taken in one order.
LAND = "UPDATE bare_endpoint SET in_flight = in_flight - %(n)s WHERE id = 1"
SETTLE = """UPDATE bare_run SET reserved = reserved - 0.001 * %(n)s, spent = spent + 0.00001 * %(n)s,
        n_running = n_running - %(n)s, n_done = n_done + %(n)s WHERE id = 1"""


def create_tables(params: dict[str, Any], trials: int) -> None:
    with psycopg.connect(**params, autocommit=True, cursor_factory=psycopg.ClientCursor) as session:
        session.execute(TABLES, {"trials": trials})
        session.execute("ANALYZE")


def work(params: dict[str, Any], batch: int) -> tuple[int, float, float]:
    """Claim and record until nothing is left. Return the number of results, and the wall times of start and end."""
    n_written = 0
    with psycopg.connect(**params, prepare_threshold=0) as session:
        start = time.time()
        while claim := _claim_batch(session, batch):
            n_written += _record_batch(session, *claim)
        return n_written, start, time.time()


def _claim_batch(session: psycopg.Connection[Any], batch: int) -> tuple[list[int], uuid.UUID] | None:
    token = uuid.uuid4()
    with session.transaction():
        (free,) = session.execute(LOCK).fetchone() or (0,)
        ids = [row[0] for row in session.execute(CLAIM, [token, min(batch, int(free))])]
        session.execute(RESERVE, {"n": len(ids)})
    return (ids, token) if ids else None


def _record_batch(session: psycopg.Connection[Any], ids: list[int], token: uuid.UUID) -> int:
    with session.transaction():
        n_written = session.execute(WRITE, [ids, token]).rowcount
        session.execute(CALLS, [ids, token])
        session.execute(LAND, {"n": len(ids)})
        session.execute(SETTLE, {"n": len(ids)})
    return n_written
