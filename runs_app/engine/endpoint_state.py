"""An endpoint's rate limiter, read and written under its row lock, so that it holds over all workers and machines."""

from __future__ import annotations

import json
from dataclasses import dataclass

from runs_app.engine.prepared_sql import fetch_prepared
from runs_app.engine.rate_limiter import RateLimiterState, RateLimits
from runs_app.llm.calls import Allowance

LOCK_ENDPOINT = """
SELECT max_concurrency, requests_per_minute, tokens_per_minute, requests_per_day, adaptive, throttle, in_flight,
    is_active AND coalesce(paused_until <= clock_timestamp(), true), extract(epoch FROM clock_timestamp())::float8,
    (clock_timestamp() AT TIME ZONE day_zone)::date::text
FROM runs_app_endpoint WHERE id = %s FOR NO KEY UPDATE
"""


READ_NOW = "SELECT throttle, extract(epoch FROM clock_timestamp())::float8 FROM runs_app_endpoint WHERE id = %s"


def read_limiter(endpoint_id: int) -> tuple[RateLimiterState, float]:
    """Return an endpoint's stored state without a lock, and the time; another worker may be changing it."""
    for stored, now in fetch_prepared(READ_NOW, endpoint_id):
        return RateLimiterState.from_row(json.loads(stored)), now
    return RateLimiterState(), 0.0


@dataclass(frozen=True, slots=True)
class EndpointState:
    """The state of an endpoint now, by the database's clock, with its token buckets refilled."""

    rates: RateLimits
    limiter: RateLimiterState
    in_flight: int
    is_open: bool
    now: float

    def apply_feedback(self, feedback: EndpointFeedback, in_flight: int) -> RateLimiterState:
        """Return the rate limiter after this feedback. `in_flight` is the number of calls still in flight."""
        limiter = self.limiter.note_signals(feedback.signals, self.now)
        limiter = limiter.adapt_limit(
            self.rates,
            in_flight=self.in_flight,
            answered=feedback.answered,
            # An outage says nothing about the number of calls that the endpoint can serve.
            overloaded=0 if limiter.down_since is not None else feedback.overloaded,
            now=self.now,
        )
        limiter = limiter.consume_tokens(feedback.requests, feedback.tokens)
        if feedback.allowance:
            limiter = limiter.apply_allowance(feedback.allowance, in_flight=in_flight, now=self.now)
        return limiter


def build_endpoint_state(
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
    """Return the state of an endpoint from a row of LOCK_ENDPOINT."""
    rates = RateLimits(most, rpm, tpm, rpd, adaptive)
    # Raw SQL returns JSON as text. Django parses only its own fields.
    limiter = RateLimiterState.from_row(json.loads(stored)).refill(rates, now, day)
    return EndpointState(rates, limiter, in_flight, is_open, now)


@dataclass(frozen=True, slots=True)
class EndpointFeedback:
    """The feedback of some calls on their endpoint.

    `answered` and `overloaded` count calls by outcome. `requests` and `tokens` are the use beyond the estimate.
    `allowance` holds the remaining rates that the provider stated last. `signals` are the evidence of the calls for or
    against an outage, and `failure` is the message of the last one that failed.
    """

    answered: int
    overloaded: int
    requests: int
    tokens: int
    allowance: Allowance | None = None
    signals: tuple[int, ...] = ()
    failure: str = ""
