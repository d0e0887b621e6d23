"""The recorder: writes results in batches, one transaction for each endpoint, fenced by the claims' tokens.

A result whose token is no longer valid changes no trial. It is recorded as a late attempt, with its cost.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import Any
from uuid import UUID

from django.db import models, transaction

from runs_app.engine.admission import Claim
from runs_app.engine.counters import ZERO, CounterDeltas, EndpointDelta, LockedCounters, RunDelta, lock_counters
from runs_app.engine.endpoint_state import EndpointFeedback, read_limiter
from runs_app.engine.prepared_sql import (
    RELEASE_LOCKS_EARLY,
    Statement,
    execute,
    fetch_prepared,
    note_early_release,
    to_pg_json,
    wait_for_disk,
)
from runs_app.engine.rate_limiter import OUTAGE_CLASSES, TURNS, compute_test_wait_s, read_signal
from runs_app.engine.run_lifecycle import is_rejected_too_often
from runs_app.llm.calls import REPLY_FIELDS, Allowance, ErrorClass
from runs_app.models import Attempt, Trial, WorkUnit

POSTGRES_TYPES = {
    "CharField": "text",
    "TextField": "text",
    "BooleanField": "bool",
    "SmallIntegerField": "int",
    "IntegerField": "int",
    "DecimalField": "numeric",
}


def _list_columns(model: type[models.Model], exclude: Collection[str]) -> dict[str, str]:
    """Return the columns of a table with their PostgreSQL types, without keys, times and the names in `exclude`."""
    fields = {field.name: field.get_internal_type() for field in model._meta.concrete_fields}
    return {
        name: POSTGRES_TYPES[kind] for name, kind in fields.items() if name not in exclude and kind in POSTGRES_TYPES
    }


ATTEMPT_COLUMNS = _list_columns(Attempt, ())
CLAIM_COLUMNS = {field.name for field in WorkUnit._meta.fields} - {"error_class", "error"}
TRIAL_COLUMNS = _list_columns(Trial, {*CLAIM_COLUMNS, "sample_idx", "place"})
# The columns that a late answer completes.
CALL_COLUMNS = {name: ATTEMPT_COLUMNS[name] for name in ("raw_response", "request_hash", *REPLY_FIELDS)}


def list_column_expressions(columns: Mapping[str, str]) -> list[str]:
    """Return the SQL expressions of these columns.

    A missing text becomes empty and a missing boolean becomes false. Only a raw response may be NULL. It is stored only
    if it differs from the answer.
    """
    defaults = {"text": "''", "bool": "false"}
    raw_response = "nullif(r.raw_response, r.answer)" if "answer" in columns else "r.raw_response"
    return [
        raw_response
        if name == "raw_response"
        else f"coalesce(r.{name}, {defaults[kind]})"
        if kind in defaults
        else f"r.{name}"
        for name, kind in columns.items()
    ]


def format_column_types(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


INSERT_ATTEMPTS = f"""
INSERT INTO runs_app_attempt (trial_id, run_id, token, worker_id, started_at, finished_at, {", ".join(ATTEMPT_COLUMNS)})
SELECT r.trial, r.run, r.token, r.worker, clock_timestamp() - coalesce(r.latency_ms, 0) * interval '1 millisecond',
    clock_timestamp(), {", ".join(list_column_expressions(ATTEMPT_COLUMNS))}
FROM json_to_recordset(%s::json) r(trial bigint, run bigint, token uuid, worker bigint,
    {format_column_types(ATTEMPT_COLUMNS)})
"""  # noqa: S608 - built from the names above


logger = logging.getLogger("evalsite.drain")

Pause = tuple[float | None, str | None]  # The seconds of the pause that an endpoint asks for, and the reason.
NO_PAUSE: Pause = None, None
REJECTED = frozenset({ErrorClass.RATE_LIMITED, ErrorClass.QUOTA_EXHAUSTED})  # Status 429.
LONGEST_PAUSE_S = 300.0  # Of a pause after status 429 for which the provider states no time.
CallKey = tuple[int, UUID, int]  # trial, token, call
LONG_COLUMNS = ("raw_response", "answer", "reasoning")  # All other columns have a maximum length.
MAX_BATCH_CHARS = 32 * 2**20  # JSON escapes and the rest of the row may make the statement six times as long.


@dataclass(slots=True)
class Result:
    """The result of one claim.

    `status` is the trial's new status. The attempt of a `released` trial does not count. `wait_s` is the wait before a
    retry, `pause_s` the pause that its endpoint needs. `trial` and each of `calls` hold columns by name, as in
    TRIAL_COLUMNS and ATTEMPT_COLUMNS; a missing column is empty. An answer with a `cache_key` is cached under that key.
    `allowance` holds the rates that the provider says are left. `passed_on` is the body that a program received from
    the gateway.
    """

    claim: Claim
    status: str
    trial: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    released: bool = False
    wait_s: float | None = None
    pause_s: float | None = None
    cache_key: str | None = None
    allowance: Allowance | None = None
    passed_on: str | None = None


def record_results(results: Sequence[Result], worker_id: int | None) -> int:
    """Write results. Return how many still held their trial; the others are recorded as late attempts."""
    recorded = sum(
        _record_for_endpoint(endpoint_id, batch, worker_id)
        for endpoint_id, endpoint_results in group_by_endpoint(results).items()
        for batch in split_batches(endpoint_results)
    )
    if results:
        wait_for_disk()
    return recorded


def _record_for_endpoint(endpoint_id: int, results: Sequence[Result], worker_id: int | None) -> int:
    with transaction.atomic():
        changes, counters = write_and_lock(endpoint_id, results, worker_id)
        if counters:
            apply_changes(counters, changes)
            counters.write_and_commit()
    return len(changes.held)


def store_replies(results: Sequence[Result]) -> None:
    """Store the bodies that programs received from the gateway."""
    for sql, parameters in _list_replies(results):
        execute(sql, *parameters)


def _list_replies(results: Sequence[Result]) -> list[Statement]:
    passed_on = [result for result in results if result.passed_on is not None]
    replies = [{"id": result.claim.trial_id, "reply": result.passed_on} for result in passed_on]
    return [(STORE_REPLIES, [to_pg_json(replies)])] if replies else []


def group_by_endpoint(results: Sequence[Result]) -> dict[int, list[Result]]:
    groups: dict[int, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.claim.counter_keys.endpoint_id].append(result)
    return dict(sorted(groups.items()))


def collect_run_ids(results: Sequence[Result]) -> set[int]:
    return {result.claim.counter_keys.run_id for result in results}


def split_batches(results: Sequence[Result]) -> Iterator[list[Result]]:
    """Split results into batches. Long answers need several, because a statement may have at most a gigabyte."""
    batch: list[Result] = []
    size = 0
    for result in results:
        size += len(result.passed_on or "")
        for name in LONG_COLUMNS:
            if text := result.trial.get(name):
                size += len(text)
        batch.append(result)
        if size > MAX_BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@dataclass(slots=True)
class RecordedChanges:
    """The changes that results of one endpoint make to its counters.

    `held` are the results whose claims were still valid. `deltas` are their changes to the counters, and `feedback` is
    their feedback on the endpoint. `late` are the attempts of the other results.
    """

    held: list[Result] = field(default_factory=list)
    deltas: CounterDeltas = field(default_factory=CounterDeltas)
    feedback: EndpointFeedback | None = None
    late: list[dict[str, Any]] = field(default_factory=list)

    def add(self, result: Result, rows: Sequence[dict[str, Any]], *, was_held: bool) -> None:
        if was_held:
            self.held.append(result)
            _count_result(result, rows, self.deltas.for_run(result.claim.counter_keys))
        else:
            self.late += [{**row, "outcome": Attempt.Outcome.LATE, **_get_raw_response_column(result)} for row in rows]


def apply_changes(counters: LockedCounters, changes: RecordedChanges) -> None:
    """Apply the changes to the locked counters. Held trials still have a run; the run of a late result may be gone."""
    counters.deltas = changes.deltas
    _end_cancelled(counters, changes.held)
    if late := _select_attempts_of_existing_runs(counters, changes.late):
        _write_late(counters, late)
    if feedback := changes.feedback:
        _count_rejections(counters, changes.held)
        limiter = counters.endpoint.apply_feedback(feedback, counters.in_flight)
        pause = find_longest_pause(counters, changes.held)
        if limiter.down_since is not None and any(feedback.signals) and counters.endpoint.is_open:
            limiter, wait_s = limiter.schedule_test(counters.endpoint.now)
            pause = max(wait_s, pause[0] or 0.0), feedback.failure
        counters.endpoint_delta = EndpointDelta(limiter, feedback.answered, feedback.overloaded, *pause)


def _count_rejections(counters: LockedCounters, results: Sequence[Result]) -> None:
    """Count the pauses after status 429 that each run has caused since its last reply of another kind.

    Calls that were in flight when the pause began may report the same rejection again, so only the first one counts.
    """
    for run_id in sorted(collect_run_ids(results)):
        own = [
            result.calls[-1]
            for result in results
            if result.calls and not result.claim.batched and result.claim.counter_keys.run_id == run_id
        ]
        before, delta = counters.runs[run_id].rejections, counters.deltas.for_run(counters.get_counter_keys(run_id))
        if any(_was_answered(call) and call.get("error_class") not in REJECTED for call in own):
            delta.rejections = 0 if before else None
        elif counters.endpoint.is_open and any(call.get("error_class") in REJECTED for call in own):
            delta.rejections = before + 1


def _was_answered(call: dict[str, Any]) -> bool:
    return call["outcome"] in (Attempt.Outcome.OK, Attempt.Outcome.PERMANENT)


def _select_attempts_of_existing_runs(
    counters: LockedCounters, rows: Sequence[dict[str, Any]]
) -> Sequence[dict[str, Any]]:
    """Return the attempts whose run still exists.

    An experiment can be deleted after the claims of its silent workers expired. Then no counter is left for a late
    call.
    """
    existing = [row for row in rows if row["run"] in counters.runs]
    if len(existing) < len(rows):
        logger.warning("%s answers arrived after their experiment was deleted", len(rows) - len(existing))
    return existing


def _end_cancelled(counters: LockedCounters, results: Sequence[Result]) -> None:
    """Cancel trials that wait for a retry in a run that was cancelled meanwhile. They would wait forever."""
    waiting = [
        result
        for result in results
        if result.status == Trial.Status.PENDING
        and counters.runs[result.claim.counter_keys.run_id].status == "cancelled"
    ]
    for result in waiting:
        result.status, result.wait_s = Trial.Status.CANCELLED, None
        counters.deltas.for_run(result.claim.counter_keys).move("pending", "cancelled")
    if waiting:
        trials = Trial.objects.filter(pk__in=[result.claim.trial_id for result in waiting])
        trials.update(status=Trial.Status.CANCELLED, not_before=None)


STORE_REPLIES = """
UPDATE runs_app_externalcall c SET reply = r.reply FROM json_to_recordset(%s::json) r(id bigint, reply text)
WHERE c.trial_id = r.id
"""
ADD_ATTEMPTS = f"""{INSERT_ATTEMPTS}
ON CONFLICT (trial_id, token, call) DO NOTHING
RETURNING trial_id, token, call, 0::numeric, false
"""

# Write the trials whose token is still valid, their attempts, and their entries in the response cache. Cache keys are
# inserted in order, because another transaction with the same key waits for this one. A row with a token is always
# running. With an array of ids, the planner looks rows up by their key. `n` numbers the results.
WRITE_TRIALS = f"""
WITH answers AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%s::json) r(n int, id bigint, held_by uuid, status text, released bool,
        wait_s float8, cache_key text, {format_column_types(TRIAL_COLUMNS)})
), held AS (
    UPDATE runs_app_trial t SET
        status = r.status, token = NULL, lease_until = NULL, reserved_usd = 0,
        attempts = t.attempts - r.released::int, yields = t.yields + r.released::int,
        not_before = CASE WHEN r.wait_s IS NOT NULL THEN clock_timestamp() + r.wait_s * interval '1 second' END,
        completed_at = CASE WHEN r.status IN ('done', 'failed') THEN clock_timestamp() END,
        ({", ".join(TRIAL_COLUMNS)}) = ROW ({", ".join(list_column_expressions(TRIAL_COLUMNS))})
    FROM answers r WHERE t.id = ANY(ARRAY(SELECT id FROM answers)) AND t.id = r.id AND t.token = r.held_by
    RETURNING r.n, t.id, r.held_by AS token, r.cache_key, r.status
), calls AS ({INSERT_ATTEMPTS} JOIN held ON held.id = r.trial AND held.token = r.token
), cached AS (
    INSERT INTO runs_app_cachedanswer (key, trial_id, created_at)
    SELECT cache_key, id, clock_timestamp() FROM held WHERE cache_key IS NOT NULL AND status = 'done' ORDER BY cache_key
    ON CONFLICT DO NOTHING
), uncached AS (
    DELETE FROM runs_app_cachedanswer c USING held
    WHERE held.status = 'failed' AND c.key = held.cache_key AND c.trial_id = held.id
)
SELECT n FROM held
"""  # noqa: S608 - built from the names above

# The sweep wrote the row of this call when the claim expired. The late answer completes the row.
LATE_ANSWERS = f"""
UPDATE runs_app_attempt t SET outcome = 'late', finished_at = clock_timestamp(), kept_usd = r.kept_usd,
    list_usd = r.list_usd,
    {", ".join(f"{name} = coalesce(r.{name}, t.{name})" for name in CALL_COLUMNS)}
FROM json_to_recordset(%s::json) r(trial bigint, token uuid, call int, kept_usd numeric, list_usd numeric,
    {format_column_types(CALL_COLUMNS)})
JOIN runs_app_attempt was ON was.trial_id = r.trial AND was.token = r.token AND was.call = r.call
WHERE t.id = was.id AND was.outcome = 'lost'
RETURNING t.trial_id, t.token, t.call, coalesce(was.kept_usd, 0), was.cost_usd IS NULL
"""  # noqa: S608 - built from the names above


def write_trials(results: Sequence[Result], worker_id: int | None) -> RecordedChanges:
    """Write the trials that this worker still holds, with their attempts. Return the changes to the counters.

    Call this before locking the counters: it takes longest, and other workers wait for that lock.
    """
    if not results:
        return RecordedChanges()
    write = TrialWrite.prepare(results, worker_id)
    return write.get_changes(fetch_prepared(write.statement[0], *write.statement[1]))


def write_and_lock(
    endpoint_id: int, results: Sequence[Result], worker_id: int | None, *, claiming: bool = False
) -> tuple[RecordedChanges, LockedCounters | None]:
    """Begin a transaction, write results as `write_trials` does, and lock the counters, in one round trip.

    Return the changes to the counters, and the counters, which are None if the endpoint no longer exists. The caller
    must then call `wait_for_disk`.
    """
    write = TrialWrite.prepare(results, worker_id) if results else None
    statements = [(RELEASE_LOCKS_EARLY, ()), *_list_replies(results), *([write.statement] if write else [])]
    note_early_release()
    counters = lock_counters(endpoint_id, collect_run_ids(results), claiming=claiming, read=statements)
    if counters is None or write is None:  # Without its endpoint, no run and no trial exists.
        return RecordedChanges(), counters
    return write.get_changes(counters.read[-1]), counters


@dataclass(slots=True)
class TrialWrite:
    """The statement that writes the results of one endpoint, with the changes that it makes if all trials are held.

    These are gathered before the statement is sent, because other workers may wait for the lock that follows it.
    """

    results: Sequence[Result]
    calls: list[list[dict[str, Any]]]
    statement: Statement
    expected: RecordedChanges

    @classmethod
    def prepare(cls, results: Sequence[Result], worker_id: int | None) -> TrialWrite:
        release_failures_of_outage(results)
        calls = [_build_attempt_rows(result, worker_id) for result in results]
        trials = [_build_trial_row(n, result) for n, result in enumerate(results)]
        statement = WRITE_TRIALS, [to_pg_json(trials), to_pg_json(chain.from_iterable(calls))]
        return cls(results, calls, statement, _gather_changes(results, calls, range(len(results))))

    def get_changes(self, rows: Sequence[tuple[Any, ...]]) -> RecordedChanges:
        """Return the changes that the statement has made. Its rows number the results whose trials were still held."""
        if len(rows) == len(self.results):
            return self.expected
        return _gather_changes(self.results, self.calls, {n for (n,) in rows})


def _gather_changes(
    results: Sequence[Result], calls: list[list[dict[str, Any]]], held: Collection[int]
) -> RecordedChanges:
    changes = RecordedChanges()
    for n, result in enumerate(results):
        changes.add(result, calls[n], was_held=n in held)
    unbatched = [result for result in changes.held if not result.claim.batched]
    if unbatched:
        changes.feedback = build_feedback(unbatched)
    return changes


def release_failures_of_outage(results: Sequence[Result]) -> None:
    """Release the trials whose calls failed because their endpoint is down: these attempts do not count.

    The endpoint is read without a lock, because trials are written before any counter is locked. So an attempt may
    count although another worker notices the outage in the same instant. All results are of one endpoint.
    """
    failed = [result for result in results if _may_show_outage(result)]
    if not failed:
        return
    stored, now = read_limiter(failed[0].claim.counter_keys.endpoint_id)
    limiter = stored.note_signals(list_signals(results), now)
    if limiter.down_since is None:
        return
    wait_s = TURNS * compute_test_wait_s(limiter.failed_tests)
    for result in failed:
        if not result.claim.item_id:  # The program that made the call repeats it.
            continue
        result.status, result.released = Trial.Status.PENDING, True
        result.wait_s = max(result.wait_s or 0.0, wait_s)
        result.calls[-1]["outcome"] = Attempt.Outcome.ENDPOINT


def _may_show_outage(result: Result) -> bool:
    return bool(
        result.calls
        and not result.claim.batched
        and result.status != Trial.Status.DONE
        and result.calls[-1].get("error_class") in OUTAGE_CLASSES
    )


def list_signals(results: Sequence[Result]) -> tuple[int, ...]:
    """Return the evidence of these results for or against an outage of their endpoint."""
    signals = (
        read_signal(result.calls[-1], result.claim.trial_id, result.claim.attempts)
        for result in results
        if result.calls and not result.claim.batched
    )
    return tuple(signal for signal in signals if signal is not None)


def _build_trial_row(n: int, result: Result) -> dict[str, Any]:
    return {
        "n": n,
        "id": result.claim.trial_id,
        "held_by": result.claim.token,
        "status": result.status,
        "released": result.released,
        "wait_s": result.wait_s,
        "cache_key": result.cache_key,
        **result.trial,
    }


def _get_raw_response_column(result: Result) -> dict[str, Any]:
    return {"raw_response": result.trial.get("raw_response")}


def _write_late(counters: LockedCounters, rows: Sequence[dict[str, Any]]) -> None:
    """Write late attempts. Every call has one row, whatever its outcome, and the ledger counts it once."""
    completed = _execute_write(LATE_ANSWERS, rows)
    inserted = insert_attempts([row for row in rows if _get_call_key(row) not in completed])
    for row in rows:
        key, delta = _get_call_key(row), counters.deltas.for_run(counters.get_counter_keys(row["run"]))
        if key in completed | inserted:
            kept_usd, was_unpriced = completed.get(key, (ZERO, False))
            count_attempt(row, delta, completes_lost=key in completed, was_unpriced=was_unpriced)
            delta.reserved_usd -= kept_usd


def insert_attempts(rows: Sequence[dict[str, Any]]) -> dict[CallKey, tuple[Decimal, bool]]:
    """Insert attempts. Return the keys of the new rows.

    Writing a batch again, after a broken connection, inserts no row.
    """
    return _execute_write(ADD_ATTEMPTS, rows)


def _execute_write(sql: str, rows: Sequence[dict[str, Any]]) -> dict[CallKey, tuple[Decimal, bool]]:
    """Return the written calls, each with its earlier reservation, and whether its cost was unknown until now."""
    if not rows:
        return {}
    return {
        (trial, token, call): (kept, was) for trial, token, call, kept, was in fetch_prepared(sql, to_pg_json(rows))
    }


def _get_call_key(row: dict[str, Any]) -> CallKey:
    return row["trial"], row["token"], row["call"]


def _build_attempt_rows(result: Result, worker_id: int | None) -> list[dict[str, Any]]:
    """Return the attempt rows of a result.

    The last call of unknown cost keeps the claim's reservation, because it may still be billed.
    """
    claim = result.claim
    identity = {
        "trial": claim.trial_id,
        "run": claim.counter_keys.run_id,
        "token": claim.token,
        "worker": worker_id,
        "call": 0,
        "batched": claim.batched,
    }
    rows = [{**identity, **call} for call in result.calls]
    unpriced = [row for row in rows if row.get("cost_usd") is None]
    if unpriced and claim.reserved_usd:
        unpriced[-1]["kept_usd"] = claim.reserved_usd
    return rows


def _count_result(result: Result, rows: Sequence[dict[str, Any]], delta: RunDelta) -> None:
    delta.move("running", result.status)
    delta.batched -= result.claim.batched
    delta.reserved_usd -= result.claim.reserved_usd
    for row in rows:
        count_attempt(row, delta)


def count_attempt(
    row: dict[str, Any], delta: RunDelta, *, completes_lost: bool = False, was_unpriced: bool = False
) -> None:
    """Add one attempt to the counters. The sweep has already counted a lost call, unpriced unless it was free."""
    cost = row.get("cost_usd")
    delta.spent_usd += Decimal(cost) if cost is not None else ZERO
    delta.reserved_usd += row.get("kept_usd") or ZERO
    delta.input_tokens += row.get("input_tokens") or 0
    delta.output_tokens += row.get("output_tokens") or 0
    if completes_lost:
        delta.unpriced -= was_unpriced and cost is not None
        return
    delta.unpriced += cost is None
    delta.attempts += 1
    delta.permanent += row["outcome"] == Attempt.Outcome.PERMANENT
    if error_class := row.get("error_class"):
        delta.errors[error_class] += 1


def build_feedback(results: Sequence[Result]) -> EndpointFeedback:
    """Return the feedback of these results: the calls that the endpoint answered, and their use of its rates.

    Leave out the results of batches, because providers have separate limits for batches.
    """
    calls = [call for result in results for call in result.calls]
    answered = sum(call["outcome"] == Attempt.Outcome.OK for call in calls)
    overloaded = sum(result.pause_s is not None for result in results)
    used = sum((call.get("input_tokens") or 0) + (call.get("output_tokens") or 0) for call in calls)
    expected = sum(result.claim.expected_tokens for result in results)
    sent = sum(call["outcome"] != Attempt.Outcome.CACHED for call in calls)
    reported = [result.allowance for result in results if result.allowance]  # In the order of arrival.
    failures = [call["error"] for call in calls if call.get("error_class") in OUTAGE_CLASSES and call.get("error")]
    return EndpointFeedback(
        answered,
        overloaded,
        sent - len(results),
        used - expected,
        reported[-1] if reported else None,
        list_signals(results),
        failures[-1][:200] if failures else "",
    )


def find_longest_pause(counters: LockedCounters, results: Sequence[Result]) -> Pause:
    """Return the longest pause that these results ask for. A 429 or an overload pauses the endpoint for all workers.

    The pauses that a run causes by one 429 after another double. The 429 that stops its run pauses nothing: the other
    runs go on.
    """
    longest: Pause = NO_PAUSE
    for result in results:
        if not result.pause_s:
            continue
        run_id, pause_s = result.claim.counter_keys.run_id, result.pause_s
        if result.calls and result.calls[-1].get("error_class") in REJECTED:
            rejections = counters.count_rejections(run_id)
            if is_rejected_too_often(rejections):
                continue
            pause_s = max(pause_s, min(LONGEST_PAUSE_S, 2.0 ** (rejections - 1))) if rejections > 1 else pause_s
        if pause_s > (longest[0] or 0.0):
            longest = pause_s, result.calls[-1].get("error", "")[:200] if result.calls else ""
    return longest
