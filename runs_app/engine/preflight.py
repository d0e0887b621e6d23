"""Preflights: tiny calls that test a model, and tries of a prompt on one item.

They use a slot, the endpoint's rates and the experiment's budget. A preflight has two short transactions, one before
the call and one after it. Both lock the endpoint, then the experiment, then the preflight. If the process dies between
them, the sweep ends the lease that it left.
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

from runs_app.engine.counters import ZERO, BudgetDelta, EndpointDelta, LockedCounters, lock_counters
from runs_app.engine.endpoint_state import EndpointFeedback
from runs_app.engine.outcomes import (
    RetryPolicy,
    build_attempt_from_failure,
    build_attempt_from_reply,
    build_failure_outcome,
)
from runs_app.engine.requests import build_target, images
from runs_app.llm import parameters
from runs_app.llm.calls import LOST, SILENT, CallFailure, CallReply, CallRequest
from runs_app.models import Attempt, Experiment, Preflight
from runs_app.models.preflights import WAIT_LIMIT
from runs_app.pricing import costs, tokens

QUESTION = "Answer with the word ready."
MAX_ANSWER_TOKENS = 16
INPUT_TOKENS = tokens.estimate_by_bytes([QUESTION])
QUESTION_MESSAGES = [{"role": "user", "content": QUESTION}]
IMAGE_TOKENS = 1500
TIMEOUT_S = 30
LEASE = timedelta(seconds=3 * TIMEOUT_S)

Status = Preflight.Status
# Only an answer proves that a model works, and only a permanent failure proves that it does not.
STATUS_BY_OUTCOME: dict[str, str] = {Attempt.Outcome.OK: Status.OK, Attempt.Outcome.PERMANENT: Status.DEAD}
Call = Callable[[CallRequest], CallReply]


@dataclass(frozen=True, slots=True)
class LockedPreflight:
    """A preflight whose rows are locked, with the locked counters of its endpoint."""

    preflight: Preflight
    counters: LockedCounters

    @property
    def reservation_usd(self) -> Decimal:
        """Return the amount reserved during the call, or afterwards for an unknown cost."""
        return self.preflight.reserved_usd or self.preflight.kept_usd or ZERO

    def write_changes(self, endpoint_delta: EndpointDelta, budget_delta: BudgetDelta) -> None:
        self.counters.endpoint_delta = endpoint_delta
        if self.preflight.experiment_id is not None:
            self.counters.deltas.by_experiment[self.preflight.experiment_id] = budget_delta
        self.counters.write_changes()


def make_preflight(key: int, call: Call) -> str:
    """Make a preflight's call if the endpoint has a free slot and the budget covers it. Return the new status.

    `call` raises CallFailure only.
    """
    request = begin_preflight(key)
    if request is not None:
        try:
            reply = call(request)
        except CallFailure as failure:
            outcome = build_failure_outcome(failure, attempts=1, yields=0, retry=RetryPolicy(max_attempts=1))
            finish_preflight(
                key, build_attempt_from_failure(failure), pause_s=outcome.pause_s, allowance=outcome.allowance
            )
        else:
            answer = reply.text if request.messages is not QUESTION_MESSAGES else ""
            finish_preflight(key, build_attempt_from_reply(reply) | {"answer": answer}, allowance=reply.allowance)
    return Preflight.objects.values_list("status", flat=True).get(pk=key)


# The two transactions -------------------------------------------------------------------------------------------------


def begin_preflight(key: int) -> CallRequest | None:
    """Take a slot and reserve the cost of a preflight, and return its request.

    Return None if the endpoint or the budget does not allow the call; the preflight then states the reason. Return None
    also if another worker was quicker.
    """
    with transaction.atomic():
        locked = _lock_preflight(key)
        if locked is None or locked.preflight.status != Status.WAITING:
            return None
        try:
            request = _build_request(locked.preflight)
        except OSError as problem:
            reason = f"the image of the item cannot be read: {problem.strerror}"
            _update(key, status=Status.UNVERIFIED, error=reason, finished_at=Now())
            return None
        ceiling = locked.preflight.model.prices.compute_ceiling(*count_tokens(locked.preflight))
        if reason := find_closed_reason(locked) or locked.preflight.find_unpaid_reason(ceiling):
            _update(key, status=Status.UNVERIFIED, error=reason, finished_at=Now())
            return None
        reservation = ZERO if locked.preflight.experiment_id is None else costs.round_reservation(ceiling)
        _start(locked, reservation, sum(count_tokens(locked.preflight)))
    return request


def finish_preflight(key: int, call: dict[str, Any], *, pause_s: float | None = None, allowance: Any = None) -> None:
    """Write the call's result. Release its slot and the unused part of its reservation. `call` has attempt columns.

    A late answer, after the sweep has ended the preflight, completes the row, because the provider may bill the call.
    """
    with transaction.atomic():
        locked = _lock_preflight(key)
        if locked is None or not _may_finish(locked.preflight, call["outcome"]):
            return
        cost = call.get("cost_usd")
        kept_usd = locked.reservation_usd if cost is None else ZERO
        outcome = call.pop("outcome")
        _update(
            key,
            status=STATUS_BY_OUTCOME.get(outcome, Status.UNVERIFIED),
            kept_usd=kept_usd or None,
            finished_at=Now(),
            **call,
        )
        endpoint_delta = _build_endpoint_delta(locked, outcome, call, pause_s, allowance)
        locked.write_changes(endpoint_delta, BudgetDelta(Decimal(cost or 0), kept_usd - locked.reservation_usd))


def sweep_preflights() -> int:
    """End the preflights whose lease has ended by the database's clock. Return how many there were."""
    ended = Preflight.objects.filter(status__in=[Status.WAITING, Status.RUNNING], lease_until__lt=Now())
    rows = list(ended.order_by("pk").values_list("pk", "status", "model__endpoint__is_free"))
    for key, status, is_free in rows:
        if status == Status.RUNNING:
            cost = 0 if is_free else None
            lost = {"outcome": Attempt.Outcome.LOST, "error_class": LOST, "error": SILENT, "cost_usd": cost}
            finish_preflight(key, lost)
        else:
            minutes = WAIT_LIMIT.seconds // 60
            _update(key, Status.WAITING, status=Status.UNVERIFIED, finished_at=Now(),
                   error=f"no worker took it within {minutes} minutes")  # fmt: skip
    return len(rows)


def _lock_preflight(key: int) -> LockedPreflight | None:
    """Lock a preflight and its counters. Return None if it was deleted with its experiment."""
    unlocked = Preflight.objects.select_related("model").filter(pk=key).first()
    counters = lock_counters(unlocked.endpoint_id or unlocked.model.endpoint_id) if unlocked else None
    if unlocked is None or counters is None:
        return None
    if unlocked.experiment_id is not None:
        list(Experiment.objects.filter(pk=unlocked.experiment_id).select_for_update(no_key=True).values_list("pk"))
    rows = Preflight.objects.select_for_update(of=("self",), no_key=True)
    row = rows.select_related("model__endpoint", "experiment").filter(pk=key).first()
    return LockedPreflight(row, counters) if row else None


def _may_finish(preflight: Preflight, outcome: str) -> bool:
    was_lost = preflight.error_class == LOST and outcome != Attempt.Outcome.LOST
    return preflight.status == Status.RUNNING or was_lost


def _update(key: int, only: str | None = None, **columns: Any) -> None:
    rows = Preflight.objects.filter(pk=key) if only is None else Preflight.objects.filter(pk=key, status=only)
    rows.update(**{"error": "", "error_class": "", "reserved_usd": 0, "lease_until": None} | columns)


def _start(locked: LockedPreflight, reserve: Decimal, tokens_taken: int) -> None:
    counters = locked.counters
    _update(
        locked.preflight.pk,
        status=Status.RUNNING,
        endpoint=counters.endpoint_id,
        reserved_usd=reserve,
        lease_until=Now() + LEASE,
        started_at=Now(),
    )
    limiter = counters.limiter.consume_tokens(1, tokens_taken)
    locked.write_changes(EndpointDelta(limiter, in_flight=1), BudgetDelta(reserved_usd=reserve))


def _build_endpoint_delta(
    locked: LockedPreflight, outcome: str, call: dict[str, Any], pause_s: float | None, allowance: Any
) -> EndpointDelta:
    """Return the changes to the endpoint. A lost preflight gives no feedback and has already released its slot."""
    counters = locked.counters
    in_flight = -1 if locked.preflight.status == Status.RUNNING else 0
    if not in_flight or outcome == Attempt.Outcome.LOST:
        return EndpointDelta(counters.limiter, in_flight=in_flight)
    answered, overloaded = int(outcome == Attempt.Outcome.OK), int(pause_s is not None)
    used = (call.get("input_tokens") or 0) + (call.get("output_tokens") or 0)
    taken = sum(count_tokens(locked.preflight))
    feedback = EndpointFeedback(answered, overloaded, 0, used - taken, allowance)
    limiter = counters.endpoint.apply_feedback(feedback, counters.in_flight + in_flight)
    reason = call.get("error", "")[:200] if pause_s else None
    return EndpointDelta(limiter, answered, overloaded, pause_s or None, reason, in_flight=in_flight)


def _build_request(preflight: Preflight) -> CallRequest:
    target = build_target(preflight.model, timeout_s=TIMEOUT_S)
    messages = QUESTION_MESSAGES if preflight.messages is None else [_load_images(row) for row in preflight.messages]
    return CallRequest(
        provider=target.provider,
        model=target.model,
        base_url=target.base_url,
        key_env=target.key_env,
        messages=messages,
        parameters=preflight.parameters or {"max_tokens": MAX_ANSWER_TOKENS},
        response_format=None,
        timeout_s=target.timeout_s,
        is_free=target.is_free,
        prices=target.prices,
        max_output_tokens=target.max_output_tokens,
        allowed_host=target.allowed_host,
    )


def _load_images(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the bytes of its images, which are stored as `sha256:HASH:CONTENT_TYPE`."""
    if isinstance(message["content"], str):
        return message
    parts = []
    for part in message["content"]:
        if part["type"] == "image_url":
            _, sha256, content_type = part["image_url"]["url"].split(":")
            part = {"type": "image_url", "image_url": {"url": images.load(sha256, content_type)}}
        parts.append(part)
    return message | {"content": parts}


def count_tokens(preflight: Preflight) -> tuple[int, int]:
    """Return bounds of the input and output tokens of a preflight. An image counts as IMAGE_TOKENS."""
    contents = [message["content"] for message in preflight.messages or QUESTION_MESSAGES]
    parts = [part for content in contents if not isinstance(content, str) for part in content]
    texts = [content for content in contents if isinstance(content, str)]
    texts += [part["text"] for part in parts if part["type"] == "text"]
    n_images = sum(part["type"] == "image_url" for part in parts)
    n_output = parameters.compute_output_ceiling(preflight.parameters, None) or MAX_ANSWER_TOKENS
    return tokens.estimate_by_bytes(texts) + IMAGE_TOKENS * n_images, n_output


# Reasons to make no call ----------------------------------------------------------------------------------------------


def find_closed_reason(locked: LockedPreflight) -> str:
    """Return why the endpoint takes no call now, and until when, or an empty text."""
    state, endpoint = locked.counters.endpoint, locked.preflight.model.endpoint
    if not endpoint.is_active:
        return f"the endpoint {endpoint} is inactive"
    if not state.is_open and endpoint.paused_until:
        until = _format_time(endpoint.paused_until.timestamp(), state.now)
        return f"the endpoint {endpoint} is paused until {until}: {endpoint.pause_reason}"
    limit = state.limiter.find_reached_limit(
        state.rates, state.in_flight, find_end_of_day(state.now, endpoint.day_zone)
    )
    if limit is None:
        return ""
    until = "" if limit.until is None else f" until {_format_time(limit.until, state.now)}"
    return f"the endpoint {endpoint} {limit.description}{until}"


def find_end_of_day(now: float, zone: str) -> float:
    """Return the next midnight in the endpoint's time zone, in seconds since 1970."""
    today = datetime.fromtimestamp(now, ZoneInfo(zone))
    return (today.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)).timestamp()


def _format_time(moment: float, now: float) -> str:
    """Return a time rounded up to the minute, with its date if that is not today."""
    until = datetime.fromtimestamp(moment, UTC) + timedelta(seconds=59)
    is_today = until.date() == datetime.fromtimestamp(now, UTC).date()
    return f"{until:%H:%M} UTC" if is_today else f"{until:%Y-%m-%d %H:%M} UTC"
