"""An endpoint's throttle, read and written under its row lock: so its rates hold over all workers and machines."""

from __future__ import annotations

import json
from dataclasses import dataclass

from runs_app.engine.rate_limiter import (
    RateLimiterState,
    RateLimits,
    adapt_limit,
    apply_allowance,
    consume_tokens,
    refill,
)
from runs_app.llm.rate_limit_headers import Allowance

# Locks the endpoint.
GATE = """
SELECT max_concurrency, requests_per_minute, tokens_per_minute, requests_per_day, adaptive, throttle, in_flight,
    is_active AND coalesce(paused_until <= clock_timestamp(), true), extract(epoch FROM clock_timestamp())::float8,
    (clock_timestamp() AT TIME ZONE day_zone)::date::text
FROM runs_app_endpoint WHERE id = %s FOR NO KEY UPDATE
"""


@dataclass(frozen=True, slots=True)
class EndpointState:
    """An endpoint as it is now, by the database's clock, its buckets refilled."""

    rates: RateLimits
    throttle: RateLimiterState
    in_flight: int
    is_open: bool
    now: float


def endpoint_state(
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
) -> EndpointState:
    """Of a row of GATE."""
    rates = RateLimits(most, rpm, tpm, rpd, adaptive)
    # Raw SQL gets JSON as text: Django reads it only for its own fields.
    throttle = refill(RateLimiterState.of(json.loads(stored)), rates, now, day)
    return EndpointState(rates, throttle, in_flight, is_open, now)


@dataclass(frozen=True, slots=True)
class EndpointFeedback:
    """What calls that landed say of their endpoint: how many it answered, and how many it was too busy for; requests
    and tokens that they took beyond what was expected of them; the provider's last word on what is left."""

    answered: int
    overloaded: int
    requests: int
    tokens: int
    allowance: Allowance | None = None


def apply_feedback(gate: EndpointState, lesson: EndpointFeedback, in_flight: int) -> RateLimiterState:
    """The throttle after it; `in_flight` are the calls that are left."""
    throttle = adapt_limit(
        gate.throttle,
        gate.rates,
        in_flight=gate.in_flight,
        answered=lesson.answered,
        overloaded=lesson.overloaded,
        now=gate.now,
    )
    throttle = consume_tokens(throttle, lesson.requests, lesson.tokens)
    return (
        apply_allowance(throttle, lesson.allowance, in_flight=in_flight, now=gate.now) if lesson.allowance else throttle
    )
