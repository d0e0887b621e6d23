"""Calls of other programs through the gateway: admission and recording, by the rules of all other calls.

A call is a trial of stage external. Its first transaction takes a slot and a request of the endpoint, reserves the
largest cost in the experiment's budget, and inserts the trial as running. Its second one records the reply through the
recorder. If the web process dies between them, the sweep ends the trial: its cost is unknown and stays reserved.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction

from runs_app.engine.admission import Claim
from runs_app.engine.backoff import RetryPolicy
from runs_app.engine.locked_counters import LockedCounters, lock_counters
from runs_app.engine.outages import measure_outage_s
from runs_app.engine.outcomes import (
    Outcome,
    build_answer_outcome,
    build_attempt_from_cache,
    build_attempt_from_failure,
    build_attempt_from_reply,
    build_cached_outcome,
    build_failure_outcome,
    classify_answer,
)
from runs_app.engine.preflight import find_end_of_day
from runs_app.engine.prepared_sql import fetch_prepared
from runs_app.engine.rate_limiter import consume_tokens, find_reached_limit
from runs_app.engine.recorder import Result, record_results
from runs_app.llm.calls import CallFailure, CallReply
from runs_app.models import CachedAnswer, ExternalCall, Run, Trial
from runs_app.pricing import costs

SPARE_S = 60  # The lease exceeds the time-out of the call by this, for a slow database.

# Under the lock of the run, its counters number its trials. Each column without a value here has a default.
INSERT = """
WITH added AS (
    INSERT INTO runs_app_trial (run_id, sample_idx, status, attempts, token, reserved_usd, lease_until, claimed_at,
        messages)
    SELECT r.id, r.n_pending + r.n_running + r.n_done + r.n_failed + r.n_cancelled, 'running', 1, %s::uuid, %s::numeric,
        clock_timestamp() + %s::float8 * interval '1 second', clock_timestamp(), %s::jsonb
    FROM runs_app_run r WHERE r.id = %s::bigint RETURNING id, sample_idx
), call AS (
    INSERT INTO runs_app_externalcall (trial_id, form, session, token, parameters)
    SELECT added.id, c.form, c.session, c.token, c.parameters
    FROM added, json_to_recordset(%s::json) c(form text, session text, token text, parameters jsonb)
)
SELECT id, sample_idx FROM added
"""


@dataclass(frozen=True, slots=True)
class ExternalRequest:
    """A call that a program asks for. `run` was fetched with its design.

    `messages` is the conversation as pages show it; it and `parameters` hold only characters that PostgreSQL can store.
    `input_tokens` and `output_tokens` are upper bounds; None: unknown.
    """

    run: Run
    form: str
    session: str
    token: str
    messages: list[dict[str, Any]]
    parameters: dict[str, Any]
    input_tokens: int
    output_tokens: int | None
    cache_key: str

    @property
    def ceiling_usd(self) -> Decimal | None:
        model = self.run.condition.model
        if model.endpoint.is_free:
            return Decimal(0)
        return costs.compute_ceiling(model.prices, self.input_tokens, self.output_tokens)

    @property
    def lease_s(self) -> float:
        return max(self.run.experiment.lease_s, self.run.experiment.request_timeout_s + SPARE_S)


class NotAdmitted(Exception):
    """A call that may not start. `is_over_budget`: the remaining budget does not cover its largest cost.

    `may_start_later` is whether a wait can help; `retry_after_s` is then the time that it needs, if it is known.
    """

    def __init__(
        self,
        reason: str,
        *,
        is_over_budget: bool = False,
        may_start_later: bool = True,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.is_over_budget, self.may_start_later = is_over_budget, may_start_later
        self.retry_after_s = retry_after_s


def begin_call(call: ExternalRequest, *, is_cached: bool = False) -> Claim:
    """Admit a call and insert its trial. Raise NotAdmitted if it may not start now.

    A call that the response cache answers needs no slot, no rate and no budget.
    """
    run, model = call.run, call.run.condition.model
    reserved = Decimal(0) if is_cached else costs.round_reservation(call.ceiling_usd)
    taken = call.input_tokens + min(call.output_tokens or costs.TYPICAL_OUTPUT_TOKENS, costs.TYPICAL_OUTPUT_TOKENS)
    expected = 0 if is_cached else taken
    with transaction.atomic():
        counters = lock_counters(model.endpoint_id, [run.pk])
        if counters is None or run.pk not in counters.runs:
            raise NotAdmitted("the model or the experiment was deleted", may_start_later=False)
        if not is_cached:
            _check_admission(call, counters, reserved)
        token = uuid.uuid4()
        identity = {name: getattr(call, name) for name in ("form", "session", "token", "parameters")}
        ((trial_id, number),) = fetch_prepared(
            INSERT, token, reserved, call.lease_s, json.dumps(call.messages), run.pk, json.dumps([identity])
        )
        keys = counters.get_counter_keys(run.pk)
        delta = counters.deltas.for_run(keys)
        delta.running += 1
        delta.reserved_usd += reserved
        if not is_cached:
            limiter = consume_tokens(counters.limiter, 1, expected)
            counters.endpoint_delta = replace(counters.endpoint_delta, limiter=limiter)
        counters.write_changes()
    return Claim(trial_id, keys, token, 0, None, number, 1, 0, reserved, expected)


def _check_admission(call: ExternalRequest, counters: LockedCounters, reserved: Decimal) -> None:
    """Raise NotAdmitted if the endpoint, the run's concurrency or the experiment's budget does not allow the call."""
    endpoint, state = call.run.condition.model.endpoint, counters.endpoint
    if not endpoint.is_active or not call.run.condition.model.is_active:
        raise NotAdmitted(f"model {call.run.condition.model} or its endpoint is not active", may_start_later=False)
    if not state.is_open:
        raise NotAdmitted(f"the endpoint {endpoint} is paused after an overload or an outage", retry_after_s=2)
    if measure_outage_s(counters.limiter, state.now) > settings.OUTAGE_LIMIT_S:
        raise NotAdmitted(f"the endpoint {endpoint} does not answer", may_start_later=False)
    day_ends = find_end_of_day(state.now, endpoint.day_zone)
    if limit := find_reached_limit(counters.limiter, state.rates, counters.in_flight, day_ends):
        wait_s = None if limit.until is None else max(0.0, limit.until - state.now)
        raise NotAdmitted(f"the endpoint {endpoint} {limit.description}", retry_after_s=wait_s)
    demand = counters.runs[call.run.pk].demand
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


def finish_call(ended: EndedCall) -> None:
    """Record a call: its trial, its attempt and its cost. A call whose claim has ended is recorded as late."""
    if ended.reply is not None and ended.from_cache:
        outcome = build_cached_outcome(ended.reply, None)
        columns = build_attempt_from_cache(ended.reply) | classify_answer(outcome.trial)
    elif ended.reply is not None:
        outcome = build_answer_outcome(ended.reply, None)
        columns = build_attempt_from_reply(ended.reply) | classify_answer(outcome.trial)
    elif ended.failure is not None:
        once = RetryPolicy(max_attempts=1)
        outcome = build_failure_outcome(ended.failure, attempts=1, yields=0, retry=once)
        outcome = Outcome("failed", outcome.trial, pause_s=outcome.pause_s, allowance=outcome.allowance)
        columns = build_attempt_from_failure(ended.failure)
    else:
        raise ValueError("a call ends with a reply or with a failure")
    result = Result(
        ended.claim,
        outcome.status,
        trial=outcome.trial,
        calls=[columns],
        pause_s=outcome.pause_s,
        cache_key=None if ended.from_cache or ended.reply is None else ended.cache_key,
        allowance=outcome.allowance,
    )
    text = ended.body.decode("utf-8", "replace").replace("\0", "\ufffd")
    with transaction.atomic():
        ExternalCall.objects.filter(pk=ended.claim.trial_id).update(reply=text)
        record_results([result], None)
