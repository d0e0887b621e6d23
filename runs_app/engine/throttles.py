"""An endpoint's throttle, read and written under its row lock: so its rates hold over all workers and machines."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db import connection

from runs_app.engine.throttling import Rates, Throttle, refilled

READ = """
SELECT id, max_concurrency, requests_per_minute, tokens_per_minute, requests_per_day, adaptive, throttle, in_flight,
    is_active AND coalesce(paused_until <= clock_timestamp(), true), extract(epoch FROM clock_timestamp())::float8,
    (clock_timestamp() AT TIME ZONE day_zone)::date::text
FROM runs_app_endpoint WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE
"""

WRITE = """
WITH rows AS (
    SELECT * FROM json_to_recordset(%s) r(id bigint, throttle jsonb, answered int, overloaded int, curve float8)
), curves AS (
    INSERT INTO runs_app_endpointtick AS t (endpoint_id, at, concurrency, answered, overloaded)
    SELECT id, date_bin('10 seconds', clock_timestamp(), 'epoch'), curve, answered, overloaded
    FROM rows WHERE answered + overloaded > 0
    ON CONFLICT (endpoint_id, at) DO UPDATE SET concurrency = excluded.concurrency,
        answered = t.answered + excluded.answered, overloaded = t.overloaded + excluded.overloaded
)
UPDATE runs_app_endpoint t SET throttle = rows.throttle FROM rows WHERE t.id = rows.id
"""


@dataclass(frozen=True, slots=True)
class Gate:
    """An endpoint as it is now, by the database's clock, its buckets refilled."""

    rates: Rates
    throttle: Throttle
    in_flight: int
    is_open: bool
    now: float


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction makes of one throttle, and what came of how many calls."""

    throttle: Throttle
    answered: int = 0
    overloaded: int = 0


def gates(endpoint_ids: Collection[int]) -> dict[int, Gate]:
    """Lock these endpoints, in the one order."""
    with connection.cursor() as cursor:
        cursor.execute(READ, [sorted(endpoint_ids)])
        return {row[0]: _gate(*row[1:]) for row in cursor.fetchall()}


def _gate(
    most: int,
    rpm: int | None,
    tpm: int | None,
    rpd: int | None,
    adaptive: bool,
    stored: str,
    in_flight: int,
    is_open: bool,
    now: float,
    day: str,
) -> Gate:
    rates = Rates(most, rpm, tpm, rpd, adaptive)
    # Raw SQL gets JSON as text: Django reads it only for its own fields.
    throttle = refilled(Throttle.of(json.loads(stored)), rates, now, day)
    return Gate(rates, throttle, in_flight, is_open, now)


def write(changes: Mapping[int, Change]) -> None:
    """Under the lock of `gates`."""
    rows = [
        {
            "id": key,
            "throttle": change.throttle.as_row(),
            "answered": change.answered,
            "overloaded": change.overloaded,
            "curve": change.throttle.limit,
        }
        for key, change in changes.items()
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(WRITE, [json.dumps(rows)])
