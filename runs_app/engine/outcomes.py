"""The outcome of a call for its trial: done, failed, or tried again after a wait. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import attrgetter
from typing import Any

from evalsite.lib.rating_scale import RatingScale
from runs_app.llm.calls import REPLY_FIELDS, Allowance, CallFailure, CallReply, ErrorClass, Kind
from runs_app.llm.rating_parser import parse_rating

LONGEST_RETRY_AFTER_S = 900.0  # A provider may ask to wait a day, but a request every 15 minutes costs nothing.


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The maximum number of attempts at a trial, and the first and longest wait between attempts, in seconds."""

    max_attempts: int = 3
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0


def compute_backoff_s(
    attempt: int,
    retry_after: float | None = None,
    base: float = 1.0,
    cap: float = 60.0,
    jitter_unit: float = 0.5,
) -> float:
    """Return the seconds to wait after this attempt (the first is 1).

    The wait doubles from `base` up to `cap`. The caller draws `jitter_unit` from 0 to 1, which shortens the wait by up
    to half, so that calls that failed together are not retried together. A Retry-After, in seconds, is the minimum. It
    counts up to a quarter of an hour, and the same draw lengthens it by up to a tenth.
    """
    doubled = min(cap, base * 2.0 ** min(max(attempt, 1) - 1, 60))
    wait = doubled * (1 - jitter_unit / 2)
    if retry_after is None or math.isnan(retry_after):
        return wait
    return max(wait, min(retry_after, LONGEST_RETRY_AFTER_S) * (1 + jitter_unit / 10))


# A trial is released if its endpoint is overloaded. Two hundred releases mean hours of waiting, so the overload is not
# temporary.
MAX_YIELDS = 200
RERUN_REASONS = {
    ErrorClass.EMPTY_ANSWER: "The answer was empty.",
    ErrorClass.UNREADABLE_ANSWER: "No rating could be read in the answer.",
}
MAX_POLL_S = 8.0  # The longest wait for an equal request in flight before the trial is claimed again.
# The precision of the columns. Amounts are rounded once, so that trial, attempt and ledger agree.
SMALLEST_USD = Decimal("0.00000001")
NEVER_SENT = frozenset({ErrorClass.NOT_ALLOWED, ErrorClass.MISSING_KEY, ErrorClass.UNRENDERABLE})
# Errors whose calls may be billed although the reply has an error status.
MAYBE_BILLED = frozenset({ErrorClass.MALFORMED_REPLY, ErrorClass.SOFT_FAILURE, ErrorClass.TIMEOUT})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a trial's attempt: its new status, and its columns.

    `wait_s` is the wait before a retry, `pause_s` the pause that the endpoint needs. The attempt of a `released` trial
    does not count. `allowance` holds the rates that the provider says are left.
    """

    status: str
    trial: dict[str, Any]
    released: bool = False
    wait_s: float | None = None
    pause_s: float | None = None
    allowance: Allowance | None = None


def build_answer_outcome(reply: CallReply, scale: RatingScale | None) -> Outcome:
    """Return the outcome of an answer. It always ends its trial: an unreadable rating is a result, not an error."""
    columns = build_reply_columns(reply) | {
        "raw_response": reply.raw_text,
        "raw_sha256": reply.raw_sha256,
        "answer": reply.text if reply.text.strip() else "",
        "reasoning": reply.reasoning,
        "truncated": reply.truncated,
        "refused": reply.refused,
    }
    if scale is not None:
        parsed = parse_rating(reply.text, scale)
        columns |= {"rating": parsed.rating, "rating_step": parsed.step, "parse_error": parsed.error or ""}
        columns["reasoning"] = parsed.reasoning or reply.reasoning
    return Outcome("done", columns, allowance=reply.allowance)


def build_cached_outcome(reply: CallReply, scale: RatingScale | None) -> Outcome:
    """Return the outcome of an answer from the response cache. No call was made, and nothing was paid."""
    outcome = build_answer_outcome(reply, scale)
    outcome.trial.update({"from_cache": True, "cost_usd": 0, "latency_ms": 0})
    return outcome


def classify_answer(trial: Mapping[str, Any]) -> dict[str, bool]:
    """Return which kinds of unusable answer apply to the answer of a done trial. Several may apply."""
    return {
        "empty": trial["answer"] == "",
        "truncated": trial["truncated"],
        "refused": trial["refused"],
        "unparsed": bool(trial.get("parse_error")),
    }


def build_rerun_outcome(reason: ErrorClass, attempts: int, retry: RetryPolicy) -> Outcome:
    """Return the outcome of an answer that the design reruns: that of a transient error. `attempts` includes this."""
    wait = _draw_wait_s(retry, attempts, None)
    return Outcome("pending", {"error_class": reason, "error": RERUN_REASONS[reason]}, wait_s=wait)


def find_rerun_reason(kinds: Mapping[str, bool], *, empty: bool, unreadable: bool) -> ErrorClass | None:
    """Return why the design reruns an answer of these kinds, or None. `empty` and `unreadable` are its settings.

    A refusal is an answer. An empty answer is unreadable, too, but only the setting for empty ones applies to it.
    """
    if kinds["refused"]:
        return None
    if kinds["empty"]:
        return ErrorClass.EMPTY_ANSWER if empty else None
    return ErrorClass.UNREADABLE_ANSWER if unreadable and kinds["unparsed"] else None


def _draw_wait_s(retry: RetryPolicy, attempts: int, retry_after_s: float | None) -> float:
    """Return the seconds before the next attempt, with jitter."""
    return compute_backoff_s(attempts, retry_after_s, retry.first_wait_s, retry.longest_wait_s, random.random())  # noqa: S311


def build_failure_outcome(failure: CallFailure, *, attempts: int, yields: int, retry: RetryPolicy) -> Outcome:
    """Return the outcome of a failed call. `attempts` includes this one.

    Waits have jitter, so that calls that failed together are not retried together.
    """
    if failure.error_class == ErrorClass.DUPLICATE_IN_FLIGHT:
        poll = compute_backoff_s(yields + 1, cap=MAX_POLL_S, jitter_unit=random.random())  # noqa: S311
        return replace(build_release_outcome(), wait_s=poll)
    columns = {"error_class": failure.error_class, "error": failure.message, "latency_ms": failure.latency_ms}
    if failure.error_class == ErrorClass.RESPONSE_FORMAT_UNSUPPORTED and yields < MAX_YIELDS:
        return Outcome("pending", columns, released=True)  # At most once: without a schema there is nothing to refuse.
    wait = _draw_wait_s(retry, attempts, failure.retry_after_s)
    if failure.error_class == ErrorClass.UNREACHABLE:  # No request causes this. `outages` decides about a pause.
        return Outcome("pending", columns, released=True, wait_s=wait)
    if failure.kind == Kind.ENDPOINT and yields < MAX_YIELDS:
        retry_after = failure.retry_after_s
        pause = min(wait, 5.0) if retry_after is None else min(retry_after, LONGEST_RETRY_AFTER_S)
        return Outcome("pending", columns, released=True, wait_s=wait, pause_s=pause, allowance=failure.allowance)
    if failure.kind == Kind.PERMANENT or attempts >= retry.max_attempts:
        return Outcome("failed", columns)
    return Outcome("pending", columns, wait_s=wait)


def build_release_outcome() -> Outcome:
    """Return the outcome of a trial that its worker releases unchanged: no call was made, or the worker stops."""
    return Outcome("pending", {"error_class": "", "error": ""}, released=True)


_get_reply_fields = attrgetter(*REPLY_FIELDS)


def build_reply_columns(reply: CallReply) -> dict[str, Any]:
    """Return the columns of an answer that trials and attempts share."""
    columns = dict(zip(REPLY_FIELDS, _get_reply_fields(reply), strict=True))
    columns["cost_usd"] = _round_usd(reply.cost_usd)
    return columns


def _round_usd(usd: Decimal | None) -> Decimal | None:
    return None if usd is None else usd.quantize(SMALLEST_USD)


def build_attempt_from_reply(reply: CallReply) -> dict[str, Any]:
    return build_reply_columns(reply) | {
        "outcome": "ok",
        "trace_id": reply.trace_id,
        "list_usd": _round_usd(reply.list_usd),
    }


def build_attempt_from_cache(reply: CallReply) -> dict[str, Any]:
    """Return the columns of an answer from the response cache. `list_usd` is the cost that the cache saved."""
    saved = _round_usd(reply.cost_usd if reply.list_usd is None else reply.list_usd)
    return {"outcome": "cached", "cost_usd": 0, "list_usd": saved, "latency_ms": 0, "response_id": reply.response_id}


def build_attempt_from_failure(failure: CallFailure) -> dict[str, Any]:
    """Return the columns of a failed call.

    A cost or token counts that the provider states apply. Without them, an error status means that the provider did not
    bill the call. After status 200, a time-out or a broken connection, the cost is unknown.
    """
    usage = failure.usage
    return {
        "outcome": failure.kind,
        "error_class": failure.error_class,
        "error": failure.message,
        "http_status": failure.http_status,
        "trace_id": failure.trace_id,
        "served_provider": failure.served_provider,
        "latency_ms": failure.latency_ms,
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cost_usd": _find_failure_cost(failure),
    }


def _find_failure_cost(failure: CallFailure) -> Decimal | None:
    if failure.cost_usd is not None:
        return _round_usd(failure.cost_usd)
    if not failure.was_sent or failure.error_class in NEVER_SENT:
        return Decimal(0)
    has_error_status = failure.http_status is not None and failure.http_status >= 300
    used_tokens = failure.usage is not None and failure.usage.input_tokens + failure.usage.output_tokens > 0
    if has_error_status and not used_tokens and failure.error_class not in MAYBE_BILLED:
        return Decimal(0)
    return None
