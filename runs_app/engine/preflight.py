"""Preflights: tiny calls that take a slot and a request of their endpoint's rates, and money of a budget.

A preflight takes two short transactions, one before the call and one after it. Both lock the endpoint, then the
experiment, then the preflight. A process that dies between them leaves a lease, which the sweep ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models.functions import Now

from evalsite.lib.text.number_format import format_money
from runs_app.engine.backoff import RetryPolicy
from runs_app.engine.counters import ZERO, BudgetDelta, EndpointDelta
from runs_app.engine.endpoint_state import EndpointFeedback, apply_feedback
from runs_app.engine.locked_counters import LockedCounters, lock_counters
from runs_app.engine.outcomes import attempt_from_failure, attempt_from_reply, conclude_failure
from runs_app.engine.rate_limiter import consume_tokens, find_reached_limit
from runs_app.engine.requests import build_target
from runs_app.llm.calls import LOST, SILENT, CallFailure, CallReply, CallRequest
from runs_app.models import Attempt, Experiment, Preflight
from runs_app.models.preflights import WAIT_LIMIT
from runs_app.pricing import costs, tokens

QUESTION = "Answer with the word ready."
MOST_TOKENS = 16  # Of the answer.
INPUT_TOKENS = tokens.estimate_by_bytes([QUESTION])
TIMEOUT_S = 30
LEASE = timedelta(seconds=3 * TIMEOUT_S)

Status = Preflight.Status
# Only an answer proves that a model is alive, and only a permanent failure that it is dead.
PROOFS: dict[str, str] = {Attempt.Outcome.OK: Status.OK, Attempt.Outcome.PERMANENT: Status.DEAD}
Call = Callable[[CallRequest], CallReply]


@dataclass(frozen=True, slots=True)
class LockedPreflight:
    """A preflight whose rows are locked, with the locked counters of its endpoint."""

    preflight: Preflight
    counters: LockedCounters

    @property
    def reservation_usd(self) -> Decimal:
        """Return its reservation: during the call, or because its cost is unknown."""
        return self.preflight.reserved_usd or self.preflight.kept_usd or ZERO

    def settle(self, endpoint_delta: EndpointDelta, budget_delta: BudgetDelta) -> None:
        self.counters.endpoint_delta = endpoint_delta
        if self.preflight.experiment_id is not None:
            self.counters.deltas.by_experiment[self.preflight.experiment_id] = budget_delta
        self.counters.settle()


def make_preflight(key: int, call: Call) -> str:
    """Make the call, if its endpoint has a slot and its budget the money. Return the preflight's status after that.

    `call` raises CallFailure only.
    """
    request = begin_preflight(key)
    if request is not None:
        try:
            reply = call(request)
        except CallFailure as failure:
            _fail(key, failure)
        else:
            finish_preflight(key, attempt_from_reply(reply), allowance=reply.allowance)
    return Preflight.objects.values_list("status", flat=True).get(pk=key)


def _fail(key: int, failure: CallFailure) -> None:
    outcome = conclude_failure(failure, attempts=1, yields=0, retry=RetryPolicy(max_attempts=1))
    finish_preflight(key, attempt_from_failure(failure), pause_s=outcome.pause_s, allowance=outcome.allowance)


# The two transactions -------------------------------------------------------------------------------------------------


def begin_preflight(key: int) -> CallRequest | None:
    """Take the slot and the money of a preflight, and return its request.

    Return None if one of them is missing, which is written to the preflight, or if another worker was quicker.
    """
    with transaction.atomic():
        locked = _open(key)
        if locked is None or locked.preflight.status != Status.WAITING:
            return None
        ceiling = costs.ceiling_per_call(locked.preflight.model.prices, INPUT_TOKENS, MOST_TOKENS)
        if why := find_closed_reason(locked) or find_unpaid_reason(locked.preflight, ceiling):
            _write(key, status=Status.UNVERIFIED, error=why, finished_at=Now())
            return None
        _start(locked, ZERO if locked.preflight.experiment_id is None else costs.round_reservation(ceiling))
    return _request(locked.preflight)


def finish_preflight(key: int, call: dict[str, Any], *, pause_s: float | None = None, allowance: Any = None) -> None:
    """Write the result of the call, given by an attempt's columns. Release the slot and the money not spent.

    An answer that arrives after the sweep has ended the preflight completes its row, because it may be billed.
    """
    with transaction.atomic():
        locked = _open(key)
        if locked is None or not _may_end(locked.preflight, call["outcome"]):
            return
        cost = call.get("cost_usd")
        kept = locked.reservation_usd if cost is None else ZERO
        outcome = call.pop("outcome")
        _write(key, status=PROOFS.get(outcome, Status.UNVERIFIED), kept_usd=kept or None, finished_at=Now(), **call)
        endpoint_delta = _endpoint_delta_after(locked, outcome, call, pause_s, allowance)
        locked.settle(endpoint_delta, BudgetDelta(Decimal(cost or 0), kept - locked.reservation_usd))


def sweep_preflights() -> int:
    """End the preflights whose lease is over, and return how many. The database's clock decides."""
    ended = Preflight.objects.filter(status__in=[Status.WAITING, Status.RUNNING], lease_until__lt=Now())
    rows = list(ended.order_by("pk").values_list("pk", "status"))
    for key, status in rows:
        if status == Status.RUNNING:
            finish_preflight(key, {"outcome": Attempt.Outcome.LOST, "error_class": LOST, "error": SILENT})
        else:
            minutes = WAIT_LIMIT.seconds // 60
            _write(key, Status.WAITING, status=Status.UNVERIFIED, finished_at=Now(),
                   error=f"no worker took it within {minutes} minutes")  # fmt: skip
    return len(rows)


def _open(key: int) -> LockedPreflight | None:
    """Lock a preflight and its counters. Return None if it was deleted with its experiment."""
    found = Preflight.objects.select_related("model").filter(pk=key).first()
    counters = lock_counters(found.endpoint_id or found.model.endpoint_id) if found else None
    if found is None or counters is None:
        return None
    if found.experiment_id is not None:
        list(Experiment.objects.filter(pk=found.experiment_id).select_for_update(no_key=True).values_list("pk"))
    rows = Preflight.objects.select_for_update(of=("self",), no_key=True)
    row = rows.select_related("model__endpoint", "experiment").filter(pk=key).first()
    return LockedPreflight(row, counters) if row else None


def _may_end(preflight: Preflight, outcome: str) -> bool:
    was_lost = preflight.error_class == LOST and outcome != Attempt.Outcome.LOST
    return preflight.status == Status.RUNNING or was_lost


def _write(key: int, only: str | None = None, **columns: Any) -> None:
    rows = Preflight.objects.filter(pk=key) if only is None else Preflight.objects.filter(pk=key, status=only)
    rows.update(**{"error": "", "error_class": "", "reserved_usd": 0, "lease_until": None} | columns)


def _start(locked: LockedPreflight, reserve: Decimal) -> None:
    counters = locked.counters
    _write(
        locked.preflight.pk,
        status=Status.RUNNING,
        endpoint=counters.endpoint_id,
        reserved_usd=reserve,
        lease_until=Now() + LEASE,
        started_at=Now(),
    )
    throttle = consume_tokens(counters.throttle, 1, INPUT_TOKENS + MOST_TOKENS)
    locked.settle(EndpointDelta(throttle, in_flight=1), BudgetDelta(reserved_usd=reserve))


def _endpoint_delta_after(
    locked: LockedPreflight, outcome: str, call: dict[str, Any], pause_s: float | None, allowance: Any
) -> EndpointDelta:
    """Return the changes to the endpoint. A lost preflight says nothing of it, and has already released its slot."""
    counters = locked.counters
    in_flight = -1 if locked.preflight.status == Status.RUNNING else 0
    if not in_flight or outcome == Attempt.Outcome.LOST:
        return EndpointDelta(counters.throttle, in_flight=in_flight)
    answered, overloaded = int(outcome == Attempt.Outcome.OK), int(pause_s is not None)
    used = (call.get("input_tokens") or 0) + (call.get("output_tokens") or 0)
    feedback = EndpointFeedback(answered, overloaded, 0, used - INPUT_TOKENS - MOST_TOKENS, allowance)
    throttle = apply_feedback(counters.endpoint, feedback, counters.in_flight + in_flight)
    reason = call.get("error", "")[:200] if pause_s else None
    return EndpointDelta(throttle, answered, overloaded, pause_s or None, reason, in_flight=in_flight)


def _request(preflight: Preflight) -> CallRequest:
    target = build_target(preflight.model, timeout_s=TIMEOUT_S)
    return CallRequest(
        provider=target.provider,
        model=target.model,
        base_url=target.base_url,
        key_env=target.key_env,
        messages=[{"role": "user", "content": QUESTION}],
        parameters={"max_tokens": MOST_TOKENS},
        response_format=None,
        timeout_s=target.timeout_s,
        is_free=target.is_free,
        prices=target.prices,
    )


# Reasons to make none -------------------------------------------------------------------------------------------------


def find_closed_reason(locked: LockedPreflight) -> str:
    """Return why the endpoint takes no call now and until when, or an empty text."""
    state, endpoint = locked.counters.endpoint, locked.preflight.model.endpoint
    if not endpoint.is_active:
        return f"the endpoint {endpoint} is out of use"
    if not state.is_open and endpoint.paused_until:
        until = _clock(endpoint.paused_until.timestamp(), state.now)
        return f"the endpoint {endpoint} is paused until {until}: {endpoint.pause_reason}"
    bound = find_reached_limit(state.throttle, state.rates, state.in_flight, day_ends(state.now, endpoint.day_zone))
    if bound is None:
        return ""
    until = "" if bound.until is None else f" until {_clock(bound.until, state.now)}"
    return f"the endpoint {endpoint} {bound.description}{until}"


def find_unpaid_reason(preflight: Preflight, ceiling: Decimal | None) -> str:
    """Return why the budget of the preflight's experiment cannot pay its possible cost, or an empty text."""
    experiment = preflight.experiment
    if experiment is None or experiment.max_usd is None:
        return ""
    if ceiling is None:
        return f"unknown price: model {preflight.model} has no price, and experiment {experiment} has a budget"
    left = experiment.max_usd - experiment.spent_usd - experiment.reserved_usd
    if costs.round_reservation(ceiling) <= left:
        return ""
    return f"the budget of {experiment} has {format_money(left)} left, and it may cost {format_money(ceiling)}"


def day_ends(now: float, zone: str) -> float:
    """Return the next midnight in the endpoint's time zone, in seconds since 1970."""
    today = datetime.fromtimestamp(now, ZoneInfo(zone))
    return (today.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)).timestamp()


def _clock(moment: float, now: float) -> str:
    """Return a time rounded up to the minute, with its date if that is not today."""
    until = datetime.fromtimestamp(moment, UTC) + timedelta(seconds=59)
    is_today = until.date() == datetime.fromtimestamp(now, UTC).date()
    return f"{until:%H:%M} UTC" if is_today else f"{until:%Y-%m-%d %H:%M} UTC"
