"""Prepared calls: trials of stage external that a process of the gateway admits before a program asks for them.

Admission takes two round trips and a flush, about as long as the rest of the gateway's work. So a process keeps a few
claims ready for each run that programs call now. Their rows are on the disk, with a slot and a reservation, and count
like calls in flight. A call that takes one is written to the result spool and begins at once. Its request is stored
some milliseconds later, in the transaction that records replies and prepares the next calls.

If the process is killed, the spool tells which claims began (`recover_prepared`). Without the spool, for example after
the loss of the machine, the sweep ends all of them as lost calls of unknown cost. So a budget is never exceeded.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from runs_app.engine.admission import Claim
from runs_app.engine.counters import RUNNING_TRIALS, CounterKeys, lock_counters
from runs_app.engine.external_calls import (
    INSERT,
    USABLE_TOKENS,
    ExternalRequest,
    complete_claims,
    decide_on_calls,
)
from runs_app.engine.prepared_sql import execute, fetch_prepared, release_locks_early, to_pg_json, wait_for_disk
from runs_app.engine.recorder import Result, apply_changes, collect_run_ids, store_replies, write_trials

logger = logging.getLogger("evalsite.gateway")

MAX_PREPARED = 16  # For each run.
MAX_AGE_S = 30.0  # An older claim is not used: its lease must exceed the time-out of its call.
IDLE_S = 5.0  # After the last call of a run, its prepared calls are released.
VALID_S, REFRESH_S = 1.0, 0.5  # How long the tokens and the endpoint count as usable, and after how long they are read.
RETRY_S = 1.0  # After an attempt to prepare found too little free, or a call needed what prepared calls took.

STORE_STARTS = """
WITH started AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%s::json) s(id bigint, started_at float8, messages jsonb, form text, session text,
        caller text, parameters jsonb)
), stored AS (
    UPDATE runs_app_trial t SET messages = s.messages,
        claimed_at = least(greatest(t.claimed_at, to_timestamp(s.started_at)), clock_timestamp())
    FROM started s WHERE t.id = ANY(ARRAY(SELECT id FROM started)) AND t.id = s.id AND t.messages = '[]'
        AND t.status <> 'done'
    RETURNING t.id
)
UPDATE runs_app_externalcall c SET form = s.form, session = s.session, token = s.caller, parameters = s.parameters
FROM started s JOIN stored ON stored.id = s.id WHERE c.trial_id = s.id
"""
DELETE_UNUSED = """
WITH deleted AS (
    DELETE FROM runs_app_trial WHERE id = ANY(%s::bigint[]) AND status = 'running' AND messages = '[]'
    RETURNING id
), calls AS (
    DELETE FROM runs_app_externalcall WHERE trial_id IN (SELECT id FROM deleted)
)
SELECT id FROM deleted
"""
PREPARED_BY_WORKER = f"""
SELECT t.id, t.token, t.reserved_usd, r.id, r.experiment_id, m.endpoint_id
FROM runs_app_run r CROSS JOIN LATERAL {RUNNING_TRIALS} t
JOIN runs_app_condition c ON c.id = r.condition_id JOIN runs_app_languagemodel m ON m.id = c.model_id
WHERE r.n_running > 0 AND t.worker_id = %s AND t.item_id IS NULL AND t.messages = '[]'
"""  # noqa: S608 - a constant


@dataclass(slots=True)
class StartedCall:
    """A prepared call that has begun. `started_at` is in seconds since 1970."""

    claim: Claim
    started_at: float
    form: str
    session: str
    caller: str
    messages: list[dict[str, Any]]
    parameters: dict[str, Any]

    @classmethod
    def build(cls, claim: Claim, call: ExternalRequest) -> StartedCall:
        return cls(claim, time.time(), call.form, call.session, call.token, call.messages, call.parameters)

    def as_row(self) -> dict[str, Any]:
        row = {name: getattr(self, name) for name in self.__slots__ if name != "claim"}
        return row | {"id": self.claim.trial_id}


def store_starts(starts: Sequence[StartedCall]) -> None:
    """Store the requests of prepared calls that have begun. Storing one again changes nothing."""
    if starts:
        execute(STORE_STARTS, to_pg_json(start.as_row() for start in starts))


@dataclass(slots=True)
class Stock:
    """The prepared calls of one run, and what is known of its calls. Times are those of `time.monotonic`.

    `sample` is the latest call of the run; `input_tokens` and `output_tokens` are the largest bounds so far. Tokens are
    the keys of access tokens.
    """

    sample: ExternalRequest
    input_tokens: int = 0
    output_tokens: int | None = 0
    claims: deque[tuple[float, Claim]] = field(default_factory=deque)
    tokens: dict[int, float] = field(default_factory=dict)
    usable: set[int] = field(default_factory=set)
    checked_at: float = -VALID_S
    retry_at: float = 0.0
    used_at: float = 0.0
    in_flight: set[UUID] = field(default_factory=set)
    most: int = 1

    @property
    def missing(self) -> int:
        return min(MAX_PREPARED, 2 * self.most) - len(self.claims)

    def note_call(self, call: ExternalRequest, now: float) -> None:
        self.used_at = self.tokens[call.token_id] = now
        self.sample = call
        self.input_tokens = max(call.input_tokens, self.input_tokens)
        known = self.output_tokens is not None and call.output_tokens is not None
        self.output_tokens = max(call.output_tokens or 0, self.output_tokens or 0) if known else None

    def list_requests(self, now: float) -> list[ExternalRequest]:
        """Return the calls to prepare. They have room for a conversation that grows."""
        if self.missing <= 0 or now < self.retry_at:
            return []
        request = replace(
            self.sample,
            input_tokens=2 * self.input_tokens,
            output_tokens=self.output_tokens,
            session="",
            messages=[],
            parameters={},
            cache_key="",
            is_prepared=True,
        )
        return [request] * self.missing


@dataclass(slots=True)
class Plan:
    """The work of one transaction for the prepared calls of one endpoint."""

    run_ids: set[int] = field(default_factory=set)
    token_ids: set[int] = field(default_factory=set)
    requests: list[ExternalRequest] = field(default_factory=list)


@dataclass(slots=True)
class Prepared:
    """The result of that transaction: the new claims, the usable tokens, and whether the endpoint may be called."""

    claims: list[Claim] = field(default_factory=list)
    usable: set[int] = field(default_factory=set)
    is_open: bool = False


class PreparedCalls:
    """The prepared calls of one process, by run. Only the event loop uses it."""

    def __init__(self) -> None:
        self._stocks: dict[int, Stock] = {}
        self._unused: list[Claim] = []
        self._revoked: set[int] = set()
        self.is_closed = False

    def __len__(self) -> int:
        return sum(len(stock.claims) for stock in self._stocks.values())

    @property
    def is_active(self) -> bool:
        return bool(self._stocks or self._unused)

    def take(self, call: ExternalRequest) -> Claim | None:
        """Return a claim for the call, or None if the call must be admitted by itself."""
        now = time.monotonic()
        stock = self._stocks.setdefault(call.run.pk, Stock(call))
        stock.note_call(call, now)
        if self.is_closed or now - stock.checked_at > VALID_S or call.token_id not in stock.usable:
            return None
        self._drop_old(stock, now)
        if stock.claims and stock.claims[0][1].reserved_usd < call.reserved_usd:
            self._drop(stock)
        return stock.claims.popleft()[1] if stock.claims else None

    def begin(self, claim: Claim) -> None:
        """Count a call that begins."""
        if (stock := self._stocks.get(claim.counter_keys.run_id)) is not None:
            stock.in_flight.add(claim.token)
            stock.most = max(stock.most, len(stock.in_flight))

    def end(self, claim: Claim) -> None:
        """Count the end of a call."""
        if (stock := self._stocks.get(claim.counter_keys.run_id)) is not None:
            stock.in_flight.discard(claim.token)

    def is_short(self, run_id: int) -> bool:
        """Return whether few prepared calls are left, so that the next ones must be prepared at once."""
        stock = self._stocks.get(run_id)
        return stock is not None and len(stock.claims) < stock.missing // 2 and time.monotonic() >= stock.retry_at

    def revoke(self, token_id: int) -> None:
        """Let a revoked token take no prepared call, even if a transaction still found it usable."""
        self._revoked.add(token_id)
        for stock in self._stocks.values():
            stock.usable.discard(token_id)

    def release(self, call: ExternalRequest) -> bool:
        """Give up the prepared calls that may keep this call from starting. Return whether there were any.

        They are those of its endpoint, which take slots, and of its experiment, which take budget.
        """
        n_unused = len(self._unused)
        model, experiment_id = call.run.condition.model, call.run.experiment_id
        for stock in self._stocks.values():
            run = stock.sample.run
            if run.condition.model.endpoint_id == model.endpoint_id or run.experiment_id == experiment_id:
                self._drop(stock)
                stock.retry_at = time.monotonic() + RETRY_S
        return len(self._unused) > n_unused

    def put_back(self, claim: Claim) -> None:
        """Give a claim up that was taken and cannot be used."""
        self._unused.append(claim)

    def take_unused(self) -> list[Claim]:
        unused, self._unused = self._unused, []
        return unused

    def list_known(self) -> set[int]:
        """Return the keys of the trials of all claims that no call has taken."""
        waiting = (claim for stock in self._stocks.values() for _, claim in stock.claims)
        return {claim.trial_id for claim in (*waiting, *self._unused)}

    def plan(self) -> dict[int, Plan]:
        """Return by endpoint what to prepare and to check now. Give up what is not needed any more."""
        now = time.monotonic()
        plans: dict[int, Plan] = defaultdict(Plan)
        for run_id, stock in list(self._stocks.items()):
            self._drop_old(stock, now)
            if self.is_closed or (not stock.in_flight and now - stock.used_at > IDLE_S):
                self._drop(stock)
                del self._stocks[run_id]
                continue
            stock.tokens = {key: used for key, used in stock.tokens.items() if now - used < MAX_AGE_S} | {
                stock.sample.token_id: now
            }
            plan = plans[stock.sample.run.condition.model.endpoint_id]
            plan.run_ids.add(run_id)
            plan.token_ids |= stock.tokens.keys()
            plan.requests += stock.list_requests(now)
        return plans

    def apply(self, plan: Plan, prepared: Prepared, began: float) -> None:
        """Note what the transaction that began at this time found."""
        for claim in prepared.claims:
            stock = self._stocks.get(claim.counter_keys.run_id)
            if stock is None:
                self._unused.append(claim)
            else:
                stock.claims.append((began, claim))
        for run_id in plan.run_ids & self._stocks.keys():
            stock = self._stocks[run_id]
            stock.usable = prepared.usable - self._revoked
            stock.checked_at = began if prepared.is_open else -VALID_S
            if not prepared.is_open:
                self._drop(stock)
            if stock.missing > 0 and len(prepared.claims) < len(plan.requests):
                stock.retry_at = began + RETRY_S

    def _drop(self, stock: Stock) -> None:
        self._unused += [claim for _, claim in stock.claims]
        stock.claims.clear()

    def _drop_old(self, stock: Stock, now: float) -> None:
        if stock.claims and now - stock.claims[0][0] > MAX_AGE_S:
            stock.most = max(1, len(stock.in_flight), stock.most // 2)  # Fewer calls at a time need fewer claims.
        while stock.claims and now - stock.claims[0][0] > MAX_AGE_S:
            self._unused.append(stock.claims.popleft()[1])


def record_and_prepare(
    endpoint_id: int, starts: Sequence[StartedCall], results: Sequence[Result], plan: Plan, worker_id: int
) -> Prepared:
    """Store starts, record results and prepare calls of one endpoint, in one transaction."""
    prepared = Prepared()
    with transaction.atomic():
        release_locks_early()
        store_starts(starts)
        changes = write_trials(results, worker_id)
        store_replies(results)
        tokens = USABLE_TOKENS, [sorted(plan.token_ids)]
        counters = lock_counters(endpoint_id, plan.run_ids | collect_run_ids(results), read=[tokens])
        if counters is not None:
            prepared.usable = {key for (key,) in counters.read[0]}
            apply_changes(counters, changes)
            outage_s = counters.limiter.measure_outage_s(counters.endpoint.now)
            prepared.is_open = counters.endpoint.is_open and outage_s <= settings.OUTAGE_LIMIT_S
            decided, rows = decide_on_calls(plan.requests, counters, worker_id)
            (inserted,) = counters.write_and_commit((INSERT, [to_pg_json(rows)]))
            prepared.claims = [one for one in complete_claims(decided, inserted) if isinstance(one, Claim)]
    wait_for_disk()
    return prepared


def delete_unused(claims: Sequence[Claim]) -> int:
    """Delete the trials of prepared calls that have not begun, and release their slots and reservations."""
    return sum(
        _delete_of_endpoint(endpoint_id, {claim.trial_id: claim for claim in claims})
        for endpoint_id, claims in _group_by_endpoint(claims)
    )


def _delete_of_endpoint(endpoint_id: int, claims: dict[int, Claim]) -> int:
    with transaction.atomic():
        deleted = [claims[key] for (key,) in fetch_prepared(DELETE_UNUSED, sorted(claims))]
        counters = lock_counters(endpoint_id, {claim.counter_keys.run_id for claim in deleted})
        if counters is None or not deleted:
            return 0
        for claim in deleted:
            delta = counters.deltas.for_run(claim.counter_keys)
            delta.running -= 1
            delta.reserved_usd -= claim.reserved_usd
        expected = sum(claim.expected_tokens for claim in deleted)
        limiter = counters.limiter.consume_tokens(-len(deleted), -expected)
        counters.endpoint_delta = replace(counters.endpoint_delta, limiter=limiter)
        counters.write_and_commit()
    return len(deleted)


def _group_by_endpoint(claims: Sequence[Claim]) -> Iterator[tuple[int, list[Claim]]]:
    groups: dict[int, list[Claim]] = defaultdict(list)
    for claim in claims:
        groups[claim.counter_keys.endpoint_id].append(claim)
    yield from sorted(groups.items())


def recover_prepared(worker_id: int, known: Collection[int]) -> int:
    """Release the prepared calls of a process that it does not know, or that it did not begin before it died.

    `known` are the keys of the other ones. Return how many were released.
    """
    claims = [
        Claim(trial_id, CounterKeys(*keys), token, 0, None, 0, 1, 0, reserved)
        for trial_id, token, reserved, *keys in fetch_prepared(PREPARED_BY_WORKER, worker_id)
        if trial_id not in known
    ]
    return delete_unused(claims)
