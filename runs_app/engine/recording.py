"""Results are written in batches, one transaction each, fenced by the token of the claim.

A result whose token no longer holds changes no trial: it is kept as a late attempt, with its cost.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from runs_app.engine.admitting import Claim
from runs_app.engine.finishing import finish_runs
from runs_app.engine.remembering import remember
from runs_app.engine.settling import ZERO, Deltas, RunDelta, lock
from runs_app.engine.throttles import Change, Gate, gates, write
from runs_app.engine.throttling import learned, taken
from runs_app.models import Attempt, Trial

logger = logging.getLogger("evalsite.drain")

# What a trial and an attempt both keep of a call, with the types that PostgreSQL reads them as.
CALL_COLUMNS = {
    "error_class": "text",
    "error": "text",
    "raw_response": "text",
    "finish_reason": "text",
    "response_id": "text",
    "served_model": "text",
    "served_provider": "text",
    "request_hash": "text",
    "input_tokens": "int",
    "output_tokens": "int",
    "reasoning_tokens": "int",
    "cache_read_tokens": "int",
    "cache_write_tokens": "int",
    "cost_usd": "numeric",
    "latency_ms": "int",
}
TRIAL_COLUMNS = CALL_COLUMNS | {
    "rating": "int",
    "rating_step": "text",
    "parse_error": "text",
    "answer": "text",
    "reasoning": "text",
    "truncated": "bool",
    "refused": "bool",
    "from_cache": "bool",
}
ATTEMPT_COLUMNS = CALL_COLUMNS | {
    "outcome": "text",
    "call": "int",
    "http_status": "int",
    "trace_id": "text",
    "kept_usd": "numeric",
    "list_usd": "numeric",
}
CallKey = tuple[int, str, int]  # trial, token, call
ClaimKey = tuple[int, UUID]  # trial, token: one drain may hold both an ended claim of a trial and its next
TEXT_DEFAULTS = {name: "" for name, kind in (TRIAL_COLUMNS | ATTEMPT_COLUMNS).items() if kind == "text"}
TEXT_DEFAULTS.pop("raw_response")
LONGEST_PORTION = 32 * 2**20  # Characters. Escaped, and with what surrounds them, they may become six times as many.
BOOL_DEFAULTS = {name: False for name, kind in TRIAL_COLUMNS.items() if kind == "bool"}


@dataclass(slots=True)
class Result:
    """What came of one claim.

    `status` is what the trial becomes. An `unspent` one is given back without the attempt counting. `wait_s` is how
    long a retry waits; `pause_s` is how long its endpoint should be left alone. `trial` and each of `calls` hold
    columns by name, as in TRIAL_COLUMNS and ATTEMPT_COLUMNS; what is missing is empty. An answer with a `cache_key` is
    remembered under it.
    """

    claim: Claim
    status: str
    trial: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    unspent: bool = False
    wait_s: float | None = None
    pause_s: float | None = None
    cache_key: str | None = None


def record(results: Sequence[Result], worker_id: int) -> int:
    """Write a batch. Returns how many results still held their trial; the others are kept as late attempts."""
    return sum(_record(portion, worker_id) for portion in _portions(results))


def _portions(results: Sequence[Result]) -> Iterator[list[Result]]:
    """One for nearly every batch; long answers take several, for PostgreSQL takes a gigabyte in one statement."""
    portion: list[Result] = []
    size = 0
    for result in results:
        size += sum(len(value) for value in result.trial.values() if isinstance(value, str))
        portion.append(result)
        if size > LONGEST_PORTION:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _record(results: Sequence[Result], worker_id: int) -> int:
    with transaction.atomic():
        open_gates = gates({result.claim.place.endpoint_id for result in results})
        run_status = lock({result.claim.place for result in results}, endpoints_are_locked=True)
        results = _of_runs_there_are(results, run_status)
        _end_cancelled(results, run_status)
        held = _update_trials(results)
        deltas = Deltas()
        _insert_attempts(results, held, worker_id, deltas)
        for result in results:
            if result.claim.key in held:
                _count(result, deltas.at(result.claim.place))
        deltas.settle()
        remember(_worth_remembering(results, held))
        _teach_endpoints(results, held, open_gates)
        _pause_endpoints(results)
        finish_runs({result.claim.place.run_id for result in results})
    return len(held)


def _of_runs_there_are(results: Sequence[Result], run_status: Mapping[int, str]) -> Sequence[Result]:
    """An experiment can be deleted once its silent workers were given up: then nothing is left to count a call in."""
    found = [result for result in results if result.claim.place.run_id in run_status]
    if len(found) < len(results):
        logger.warning("%s answers came after their experiment had been deleted", len(results) - len(found))
    return found


def _worth_remembering(results: Sequence[Result], held: Collection[ClaimKey]) -> dict[str, int]:
    return {
        result.cache_key: result.claim.trial_id
        for result in results
        if result.cache_key and result.status == Trial.Status.DONE and result.claim.key in held
    }


def _end_cancelled(results: Sequence[Result], run_status: dict[int, str]) -> None:
    """A retry of a cancelled run would wait for ever."""
    for result in results:
        if result.status == Trial.Status.PENDING and run_status[result.claim.place.run_id] == "cancelled":
            result.status, result.wait_s = Trial.Status.CANCELLED, None


UPDATE_TRIALS = f"""
UPDATE runs_app_trial t SET
    status = r.status, token = NULL, lease_until = NULL, reserved_usd = 0,
    attempts = t.attempts - r.unspent::int, yields = t.yields + r.unspent::int,
    not_before = CASE WHEN r.wait_s IS NOT NULL THEN clock_timestamp() + r.wait_s * interval '1 second' END,
    completed_at = CASE WHEN r.status IN ('done', 'failed') THEN clock_timestamp() END,
    {", ".join(f"{name} = r.{name}" for name in TRIAL_COLUMNS)}
FROM json_to_recordset(%s) r(id bigint, held_by uuid, status text, unspent bool, wait_s float8,
    {", ".join(f"{name} {kind}" for name, kind in TRIAL_COLUMNS.items())})
WHERE t.id = r.id AND t.token = r.held_by AND t.status = 'running'
RETURNING t.id, r.held_by
"""  # noqa: S608 - built from the names above


def _update_trials(results: Sequence[Result]) -> set[ClaimKey]:
    rows = [
        {
            "id": result.claim.trial_id,
            "held_by": str(result.claim.token),
            "status": result.status,
            "unspent": result.unspent,
            "wait_s": result.wait_s,
            **TEXT_DEFAULTS,
            **BOOL_DEFAULTS,
            **result.trial,
        }
        for result in results
    ]
    with connection.cursor() as cursor:
        cursor.execute(UPDATE_TRIALS, [as_json(rows)])
        return set(cursor.fetchall())


INSERT_ATTEMPTS = f"""
INSERT INTO runs_app_attempt (trial_id, run_id, token, worker_id, started_at, finished_at, {", ".join(ATTEMPT_COLUMNS)})
SELECT trial, run, token, worker, clock_timestamp() - coalesce(latency_ms, 0) * interval '1 millisecond',
    clock_timestamp(), {", ".join(ATTEMPT_COLUMNS)}
FROM json_to_recordset(%s) r(trial bigint, run bigint, token uuid, worker bigint,
    {", ".join(f"{name} {kind}" for name, kind in ATTEMPT_COLUMNS.items())})
ON CONFLICT (trial_id, token, call) DO NOTHING
RETURNING trial_id, token, call, 0::numeric
"""  # noqa: S608 - built from the names above

# The sweep wrote the row of this call when its worker was given up: the answer that came after all completes it.
LATE_ANSWERS = f"""
UPDATE runs_app_attempt t SET outcome = 'late', finished_at = clock_timestamp(), kept_usd = r.kept_usd,
    list_usd = r.list_usd,
    {", ".join(f"{name} = coalesce(r.{name}, t.{name})" for name in CALL_COLUMNS if not name.startswith("error"))}
FROM json_to_recordset(%s) r(trial bigint, token uuid, call int, kept_usd numeric, list_usd numeric,
    {", ".join(f"{name} {kind}" for name, kind in CALL_COLUMNS.items())})
JOIN runs_app_attempt was ON was.trial_id = r.trial AND was.token = r.token AND was.call = r.call
WHERE t.id = was.id AND was.outcome = 'lost'
RETURNING t.trial_id, t.token, t.call, coalesce(was.kept_usd, 0)
"""  # noqa: S608 - built from the names above


def _insert_attempts(results: Sequence[Result], held: Collection[ClaimKey], worker_id: int, deltas: Deltas) -> None:
    """Every call is a row, whatever came of it; the ledger counts them all."""
    rows, late = [], []
    for result in results:
        for row in _attempt_rows(result, worker_id):
            rows.append((result.claim.place, row))
            if result.claim.key not in held:
                row |= {"outcome": Attempt.Outcome.LATE, "raw_response": result.trial.get("raw_response")}
                late.append(row)
    completed = _written(LATE_ANSWERS, late)
    inserted = insert_attempts([row for _, row in rows if _call_key(row) not in completed])
    for place, row in rows:
        key = _call_key(row)
        if key in completed | inserted:
            count_attempt(row, deltas.at(place), completes_lost=key in completed)
            deltas.at(place).reserved_usd -= completed.get(key, ZERO)


def insert_attempts(rows: list[dict[str, Any]]) -> dict[CallKey, Decimal]:
    """The keys of the rows that were new: a batch that is written again, after a broken connection, adds none."""
    return _written(INSERT_ATTEMPTS, rows)


def _written(sql: str, rows: list[dict[str, Any]]) -> dict[CallKey, Decimal]:
    """The calls that were written, each with what was kept for it before."""
    if not rows:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(sql, [as_json(rows)])
        return {(trial, str(token), call): kept for trial, token, call, kept in cursor.fetchall()}


def _call_key(row: dict[str, Any]) -> CallKey:
    return row["trial"], row["token"], row["call"]


def _attempt_rows(result: Result, worker_id: int) -> list[dict[str, Any]]:
    """What was reserved for the claim is kept for the last of its calls whose cost is unknown: it may be billed yet."""
    claim = result.claim
    identity = {
        "trial": claim.trial_id,
        "run": claim.place.run_id,
        "token": str(claim.token),
        "worker": worker_id,
        "call": 0,
    }
    rows = [{**TEXT_DEFAULTS, **identity, **call} for call in result.calls]
    unpriced = [row for row in rows if row.get("cost_usd") is None]
    if unpriced and claim.reserved_usd:
        unpriced[-1]["kept_usd"] = claim.reserved_usd
    return rows


def count_attempt(row: dict[str, Any], delta: RunDelta, *, completes_lost: bool = False) -> None:
    """One attempt's part in the counters. A completed lost one was counted, as unpriced, when it was given up."""
    cost = row.get("cost_usd")
    delta.spent_usd += Decimal(cost) if cost is not None else ZERO
    delta.reserved_usd += row.get("kept_usd") or ZERO
    delta.input_tokens += row.get("input_tokens") or 0
    delta.output_tokens += row.get("output_tokens") or 0
    delta.unpriced += (cost is None) - completes_lost
    if completes_lost:
        return
    delta.attempts += 1
    delta.permanent += row["outcome"] == Attempt.Outcome.PERMANENT
    if row["error_class"]:
        delta.errors[row["error_class"]] += 1


def _count(result: Result, delta: RunDelta) -> None:
    delta.move("running", result.status)
    delta.batched -= result.claim.batched
    delta.reserved_usd -= result.claim.reserved_usd


def _teach_endpoints(results: Sequence[Result], held: Collection[ClaimKey], open_gates: Mapping[int, Gate]) -> None:
    """What the answers say of how many calls an endpoint takes, and what they really took of its rates.

    Nothing where they came in a batch: a provider keeps other limits for those.
    """
    by_endpoint: dict[int, list[Result]] = defaultdict(list)
    for result in results:
        if result.claim.key in held and not result.claim.batched:
            by_endpoint[result.claim.place.endpoint_id].append(result)
    write({key: _lesson(open_gates[key], some) for key, some in by_endpoint.items()})


def _lesson(gate: Gate, results: Sequence[Result]) -> Change:
    calls = [call for result in results for call in result.calls]
    answered = sum(call["outcome"] == Attempt.Outcome.OK for call in calls)
    overloaded = sum(result.pause_s is not None for result in results)
    throttle = learned(
        gate.throttle, gate.rates, in_flight=gate.in_flight, answered=answered, overloaded=overloaded, now=gate.now
    )
    used = sum((call.get("input_tokens") or 0) + (call.get("output_tokens") or 0) for call in calls)
    expected = sum(result.claim.expected_tokens for result in results)
    made = sum(call["outcome"] != Attempt.Outcome.CACHED for call in calls)
    return Change(taken(throttle, made - len(results), used - expected), answered, overloaded)


PAUSE_ENDPOINTS = """
UPDATE runs_app_endpoint t SET
    paused_until = greatest(t.paused_until, clock_timestamp() + r.pause_s * interval '1 second'),
    pause_reason = r.reason
FROM json_to_recordset(%s) r(id bigint, pause_s float8, reason text) WHERE t.id = r.id
"""


def _pause_endpoints(results: Sequence[Result]) -> None:
    """A 429 or an overload is the endpoint's state, so it slows the endpoint, for all workers."""
    longest: dict[int, Result] = {}
    for result in results:
        key = result.claim.place.endpoint_id
        if result.pause_s and (key not in longest or result.pause_s > (longest[key].pause_s or 0)):
            longest[key] = result
    rows = [
        {"id": key, "pause_s": one.pause_s, "reason": one.calls[-1].get("error", "")[:200] if one.calls else ""}
        for key, one in longest.items()
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(PAUSE_ENDPOINTS, [as_json(rows)])


def as_json(rows: Sequence[dict[str, Any]]) -> str:
    """JSON that PostgreSQL takes: decimals and ids as text, and only characters that its text can hold."""
    clean = [{name: _clean(value) for name, value in row.items()} for row in rows]
    return json.dumps(clean, default=_plain, ensure_ascii=False)


def _clean(value: Any) -> Any:
    """A model may answer with NUL or half a surrogate pair, which PostgreSQL's text cannot hold."""
    if not isinstance(value, str) or (value.isascii() and "\x00" not in value):
        return value
    return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _plain(value: Any) -> str:
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a column's value")
