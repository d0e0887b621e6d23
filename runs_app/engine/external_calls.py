"""Calls of other programs through the gateway: admission and recording, by the rules of all other calls.

A call is a trial of stage external. A first transaction takes a slot and a request of the endpoint, reserves the
largest cost in the experiment's budget, and inserts the trial as running. A second one, by the recorder, writes the
reply. If the process dies while the call is in flight, the sweep ends the trial: its cost is unknown and stays
reserved.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction

from runs_app.engine.admission import Claim
from runs_app.engine.counters import LockedCounters, lock_counters
from runs_app.engine.fair_share import Demand
from runs_app.engine.outcomes import (
    Outcome,
    RetryPolicy,
    build_answer_outcome,
    build_attempt_from_cache,
    build_attempt_from_failure,
    build_attempt_from_reply,
    build_cached_outcome,
    build_failure_outcome,
    classify_answer,
)
from runs_app.engine.preflight import find_end_of_day
from runs_app.engine.prepared_sql import to_pg_json
from runs_app.engine.recorder import Result
from runs_app.llm.calls import CallFailure, CallReply
from runs_app.models import CachedAnswer, Run, Trial
from runs_app.pricing import costs

SPARE_SHARE = 20  # A prepared call takes at most this part of the remaining budget, and of the tokens a minute.
SPARE_S = 60  # The lease exceeds the time-out of the call by this, for a slow database.

USABLE_TOKENS = """
SELECT t.id FROM runs_app_apitoken t JOIN auth_user u ON u.id = t.user_id
WHERE t.id = ANY(%s::bigint[]) AND t.revoked_at IS NULL AND t.expires_at > clock_timestamp() AND u.is_active
"""
# Under the locks of the runs, new trials are numbered from the last one, which an index finds. The columns without a
# value here have a default.
INSERT = """
WITH calls AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%s::json) c(n int, run_id bigint, token uuid, worker_id bigint,
        reserved_usd numeric, lease_s float8, messages jsonb, form text, session text, caller text, parameters jsonb)
), added AS (
    INSERT INTO runs_app_trial (run_id, sample_idx, status, attempts, token, worker_id, reserved_usd, lease_until,
        claimed_at, messages)
    SELECT c.run_id, coalesce(last.sample_idx, -1) + row_number() OVER (PARTITION BY c.run_id ORDER BY c.n),
        'running', 1, c.token, c.worker_id, c.reserved_usd, clock_timestamp() + c.lease_s * interval '1 second',
        clock_timestamp(), c.messages
    FROM calls c LEFT JOIN LATERAL (
        SELECT sample_idx FROM runs_app_trial t WHERE t.run_id = c.run_id
        ORDER BY item_id DESC, dimension_id DESC, sample_idx DESC LIMIT 1
    ) last ON true RETURNING id, sample_idx, token
), external AS (
    INSERT INTO runs_app_externalcall (trial_id, form, session, token, parameters)
    SELECT added.id, c.form, c.session, c.caller, c.parameters FROM added JOIN calls c ON c.token = added.token
)
SELECT token, id, sample_idx FROM added
"""


@dataclass(frozen=True, slots=True)
class ExternalRequest:
    """A call that a program asks for. `run` was fetched with its design.

    `messages` is the conversation as pages show it; it and `parameters` hold only characters that PostgreSQL can store.
    `input_tokens` and `output_tokens` are upper bounds; None: unknown. `token` is the public part of the access token.
    A call `from_cache` is answered by an earlier reply: it needs no slot, no rate and no budget. A call that
    `is_prepared` has no program yet (`prepared_calls`).
    """

    run: Run
    form: str
    session: str
    token_id: int
    token: str
    messages: list[dict[str, Any]]
    parameters: dict[str, Any]
    input_tokens: int
    output_tokens: int | None
    cache_key: str
    from_cache: bool = False
    is_prepared: bool = False

    @property
    def ceiling_usd(self) -> Decimal | None:
        model = self.run.condition.model
        if model.endpoint.is_free:
            return Decimal(0)
        return model.prices.compute_ceiling(self.input_tokens, self.output_tokens)

    @property
    def reserved_usd(self) -> Decimal:
        """Return what the call reserves in its experiment's budget."""
        return Decimal(0) if self.from_cache else costs.round_reservation(self.ceiling_usd)

    @property
    def lease_s(self) -> float:
        return max(self.run.experiment.lease_s, self.run.experiment.request_timeout_s + SPARE_S)


class NotAdmitted(Exception):
    """A call that may not start. `is_over_budget`: the remaining budget does not cover its largest cost.

    `may_start_later` is whether a wait can help; `retry_after_s` is then the time that it needs, if it is known.
    `was_revoked`: the access token ended after its last check.
    """

    def __init__(
        self,
        reason: str,
        *,
        is_over_budget: bool = False,
        may_start_later: bool = True,
        retry_after_s: float | None = None,
        was_revoked: bool = False,
    ) -> None:
        super().__init__(reason)
        self.is_over_budget, self.may_start_later = is_over_budget, may_start_later
        self.retry_after_s, self.was_revoked = retry_after_s, was_revoked


def begin_calls(calls: Sequence[ExternalRequest]) -> list[Claim | NotAdmitted]:
    """Admit calls to one endpoint in their order, and insert the trials of those that may start now.

    Return the claim of each call, or why it may not start. One transaction decides on all of them, because each
    transaction locks the endpoint.
    """
    endpoint_id = calls[0].run.condition.model.endpoint_id
    with transaction.atomic():
        tokens = USABLE_TOKENS, [[call.token_id for call in calls]]
        counters = lock_counters(endpoint_id, {call.run.pk for call in calls}, read=[tokens])
        decided, rows = decide_on_calls(calls, counters)
        if counters is None or not rows:
            return decided
        (inserted,) = counters.write_and_commit((INSERT, [to_pg_json(rows)]))
    return complete_claims(decided, inserted)


def decide_on_calls(
    calls: Sequence[ExternalRequest], counters: LockedCounters | None, worker_id: int | None = None
) -> tuple[list[Claim | NotAdmitted], list[dict[str, Any]]]:
    """Return the claim of each call, or why it may not start, and the rows of INSERT. Count the claims in `counters`.

    The first statement that `counters` read is USABLE_TOKENS. The worker is the process that prepares calls.
    """
    usable = {key for (key,) in counters.read[0]} if counters is not None else set()
    decided: list[Claim | NotAdmitted] = []
    rows = []
    for n, call in enumerate(calls):
        reserved = call.reserved_usd
        try:
            if counters is None or call.run.pk not in counters.runs:
                raise NotAdmitted("the model or the experiment was deleted", may_start_later=False)
            if call.token_id not in usable:
                raise NotAdmitted("the token has expired or was revoked", may_start_later=False, was_revoked=True)
            if not call.from_cache:
                _check_admission(call, counters, reserved)
        except NotAdmitted as reason:
            decided.append(reason)
            continue
        taken = min(call.output_tokens or costs.TYPICAL_OUTPUT_TOKENS, costs.TYPICAL_OUTPUT_TOKENS)
        expected = 0 if call.from_cache else call.input_tokens + taken
        keys = counters.get_counter_keys(call.run.pk)
        delta = counters.deltas.for_run(keys)
        delta.running += 1
        delta.reserved_usd += reserved
        if not call.from_cache:
            limiter = counters.limiter.consume_tokens(1, expected)
            counters.endpoint_delta = replace(counters.endpoint_delta, limiter=limiter)
        claim = Claim(0, keys, uuid.uuid4(), 0, None, 0, 1, 0, reserved, expected)
        decided.append(claim)
        rows.append(
            {
                "n": n,
                "run_id": call.run.pk,
                "token": claim.token,
                "worker_id": worker_id,
                "reserved_usd": reserved,
                "lease_s": call.lease_s,
                "messages": call.messages,
                "form": call.form,
                "session": call.session,
                "caller": call.token,
                "parameters": call.parameters,
            }
        )
    return decided, rows


def complete_claims(
    decided: Sequence[Claim | NotAdmitted], inserted: Sequence[tuple[Any, ...]]
) -> list[Claim | NotAdmitted]:
    """Return the claims with the keys and numbers of their inserted trials."""
    added = {token: numbers for token, *numbers in inserted}
    return [
        one._replace(trial_id=added[one.token][0], sample_idx=added[one.token][1]) if isinstance(one, Claim) else one
        for one in decided
    ]


def _check_admission(call: ExternalRequest, counters: LockedCounters, reserved: Decimal) -> None:
    """Raise NotAdmitted if the endpoint, the run's concurrency or the experiment's budget does not allow the call."""
    endpoint, state = call.run.condition.model.endpoint, counters.endpoint
    if not endpoint.is_active or not call.run.condition.model.is_active:
        raise NotAdmitted(f"model {call.run.condition.model} or its endpoint is not active", may_start_later=False)
    if not state.is_open:
        raise NotAdmitted(f"the endpoint {endpoint} is paused after an overload or an outage", retry_after_s=2)
    if counters.limiter.measure_outage_s(state.now) > settings.OUTAGE_LIMIT_S:
        raise NotAdmitted(f"the endpoint {endpoint} does not answer", may_start_later=False)
    day_ends = find_end_of_day(state.now, endpoint.day_zone)
    if limit := counters.limiter.find_reached_limit(state.rates, counters.in_flight, day_ends):
        wait_s = None if limit.until is None else max(0.0, limit.until - state.now)
        raise NotAdmitted(f"the endpoint {endpoint} {limit.description}", retry_after_s=wait_s)
    run = counters.runs[call.run.pk]
    demand = run.get_demand_with(counters.deltas.for_run(counters.get_counter_keys(call.run.pk)))
    if demand.in_flight >= demand.max_concurrency:
        raise NotAdmitted(f"the experiment allows {demand.max_concurrency} calls to this model at once")
    left = counters.get_budgets()[call.run.experiment_id]
    if left is not None and reserved > left:
        others = Run.objects.filter(experiment=call.run.experiment_id, n_running__gt=0)
        raise NotAdmitted(
            f"the budget of {call.run.experiment} has ${max(left, Decimal(0)):.4f} left,"
            f" and this call may cost ${reserved:.4f}",
            is_over_budget=True,
            may_start_later=others.exists(),
        )
    if call.is_prepared:
        _check_spare(call, counters, demand, left)


def _check_spare(call: ExternalRequest, counters: LockedCounters, demand: Demand, left_usd: Decimal | None) -> None:
    """Raise NotAdmitted if a prepared call could keep other calls from starting: half of each limit stays free."""
    taken = counters.in_flight + 2
    free = counters.limiter.count_free_slots(counters.endpoint.rates, counters.in_flight)
    tokens_left = counters.limiter.tokens_left
    if (
        free < taken
        or demand.max_concurrency < 2 * demand.in_flight + 2
        or (left_usd is not None and left_usd < SPARE_SHARE * call.reserved_usd)
        or (tokens_left is not None and tokens_left < SPARE_SHARE * call.input_tokens)
    ):
        raise NotAdmitted("too little is free to prepare calls")


def find_cached_call(key: str) -> Trial | None:
    """Return the trial of this experiment that answered an equal request, or None."""
    row = CachedAnswer.objects.answered().filter(pk=key).select_related("trial__external_call").first()
    return row.trial if row else None


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended, with its reply or its failure. `body` is what the program received."""

    claim: Claim
    body: bytes = b""
    reply: CallReply | None = None
    failure: CallFailure | None = None
    from_cache: bool = False
    cache_key: str = ""

    def build_result(self) -> Result:
        """Return what the recorder writes: the trial, the attempt with its cost, and the reply."""
        if self.reply is not None and self.from_cache:
            outcome = build_cached_outcome(self.reply, None)
            columns = build_attempt_from_cache(self.reply) | classify_answer(outcome.trial)
        elif self.reply is not None:
            outcome = build_answer_outcome(self.reply, None)
            columns = build_attempt_from_reply(self.reply) | classify_answer(outcome.trial)
        elif self.failure is not None:
            once = RetryPolicy(max_attempts=1)
            outcome = build_failure_outcome(self.failure, attempts=1, yields=0, retry=once)
            outcome = Outcome("failed", outcome.trial, pause_s=outcome.pause_s, allowance=outcome.allowance)
            columns = build_attempt_from_failure(self.failure)
        else:
            raise ValueError("a call ends with a reply or with a failure")
        return Result(
            self.claim,
            outcome.status,
            trial=outcome.trial,
            calls=[columns],
            pause_s=outcome.pause_s,
            cache_key=None if self.from_cache or self.reply is None else self.cache_key,
            allowance=outcome.allowance,
            passed_on=self.body.decode("utf-8", "replace"),
        )
