"""The rate limiter of an endpoint: token buckets and an adaptive concurrency limit. Pure arithmetic.

A bucket holds the rate of ten seconds. It refills slowly enough that no minute exceeds its rate. The concurrency limit
grows while it is in use and calls are answered. It is cut when the endpoint says that it is overloaded. This is
additive increase, multiplicative decrease (Chiu & Jain 1989). At the start the limit doubles, until the first cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from runs_app.llm.rate_limit_headers import Allowance

BURST = 1 / 6  # The part of a minute's rate that a bucket holds.
SLOWEST = 0.99  # Per minute. A bucket holds all of a rate of 1, so without this minimum it would never refill.
FIRST_LIMIT = 16.0
CUT = 0.7
# Calls that were in flight at a cut may report the same overload again, so these reports do not count.
COOLDOWN_S = 2.0
IN_USE = 0.75  # Of the limit. Below it, answers do not show whether more calls would be answered.


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits that an operator sets; None means no limit. A change takes effect at the next claim."""

    max_concurrency: int
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    requests_per_day: int | None = None
    adaptive: bool = True


@dataclass(frozen=True, slots=True)
class RateLimiterState:
    """The stored state of an endpoint's rate limiter. Times are seconds since 1970 by the database's clock.

    `day` is the provider's. The buckets may fall below zero by the tokens that one batch used beyond its estimate, and
    refill first. `said_...` are the amounts that the provider says are left, valid until the time of the same name.
    """

    limit: float = FIRST_LIMIT
    cut_at: float | None = None
    requests: float | None = None
    tokens: float | None = None
    filled_at: float = 0.0
    day: str = ""
    today: int = 0
    reported_requests: float | None = None
    reported_tokens: float | None = None
    requests_until: float | None = None
    tokens_until: float | None = None

    @classmethod
    def of(cls, stored: dict[str, Any]) -> RateLimiterState:
        """Return the state from its stored form. Ignore fields that another version of a worker stored."""
        return cls(**{name: stored[name] for name in cls.__slots__ if name in stored})

    @property
    def tokens_left(self) -> float | None:
        """Return the tokens left by our bucket or by the provider's statement, the smaller; None without any limit."""
        return min((n for n in (self.tokens, self.reported_tokens) if n is not None), default=None)

    def as_row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def refill(throttle: RateLimiterState, rates: RateLimits, now: float, day: str) -> RateLimiterState:
    """Return the state at a later time: buckets refilled, a new day's count begun, expired statements dropped."""
    passed = max(0.0, now - throttle.filled_at)
    return replace(
        _drop_expired_reports(throttle, now),
        requests=_bucket(throttle.requests, rates.requests_per_minute, passed),
        tokens=_bucket(throttle.tokens, rates.tokens_per_minute, passed),
        filled_at=now,
        day=day,
        today=throttle.today if throttle.day == day else 0,
    )


def _drop_expired_reports(throttle: RateLimiterState, now: float) -> RateLimiterState:
    if throttle.requests_until is not None and throttle.requests_until <= now:
        throttle = replace(throttle, reported_requests=None, requests_until=None)
    if throttle.tokens_until is not None and throttle.tokens_until <= now:
        throttle = replace(throttle, reported_tokens=None, tokens_until=None)
    return throttle


def _bucket(content: float | None, rate: int | None, passed: float) -> float | None:
    if rate is None:
        return None
    capacity = _capacity(rate)
    if content is None:
        return capacity
    # A debt lasts for one minute at most. So a debt beyond one minute's rate, as of a wrong count of tokens, is cut.
    return min(capacity, max(content, -float(rate)) + passed * _refill(rate))


def _capacity(rate: int) -> float:
    return max(1.0, rate * BURST)


def _refill(rate: int) -> float:
    """Return how much a bucket refills in a second."""
    return max(SLOWEST, rate - _capacity(rate)) / 60


class StartLimit(NamedTuple):
    """The number of calls that one limit lets start, and the limit in words that follow the endpoint's name.

    If it lets none start, `until` is the earliest time for the next, in seconds since 1970. It is None if that depends
    on when calls end.
    """

    free: int
    description: str
    until: float | None = None


def free_slots(throttle: RateLimiterState, rates: RateLimits, in_flight: int) -> int:
    """Return the number of calls that may start now. `throttle` is refilled."""
    return max(0, min(bound.free for bound in _bounds(throttle, rates, in_flight)))


def find_reached_limit(
    throttle: RateLimiterState, rates: RateLimits, in_flight: int, day_ends: float
) -> StartLimit | None:
    """Return the limit that keeps the next call from starting, or None if it may start. `throttle` is refilled."""
    bounds = _bounds(throttle, rates, in_flight, day_ends)
    return next((bound for bound in bounds if bound.free <= 0), None)


def _bounds(
    throttle: RateLimiterState, rates: RateLimits, in_flight: int, day_ends: float | None = None
) -> list[StartLimit]:
    most = int(min(throttle.limit, rates.max_concurrency)) if rates.adaptive else rates.max_concurrency
    bounds = [StartLimit(most - in_flight, f"has {in_flight} of {most} calls in flight")]
    if throttle.requests is not None and (rate := rates.requests_per_minute):
        wait = _until(throttle, 1 - throttle.requests, rate)
        bounds.append(StartLimit(int(throttle.requests), f"has used up its {rate} requests a minute", wait))
    if rates.requests_per_day is not None:
        left = rates.requests_per_day - throttle.today
        bounds.append(StartLimit(left, f"has used up its {rates.requests_per_day} requests a day", day_ends))
    if throttle.reported_requests is not None:
        bounds.append(
            StartLimit(int(throttle.reported_requests), "says that no request is left", throttle.requests_until)
        )
    return [*bounds, *_exhausted_token_limits(throttle, rates)]


def _exhausted_token_limits(throttle: RateLimiterState, rates: RateLimits) -> list[StartLimit]:
    """Return the exhausted token limits.

    Tokens limit calls only when none are left: a call's use is known at its end.
    """
    bounds = []
    if throttle.tokens is not None and throttle.tokens <= 0 and (rate := rates.tokens_per_minute):
        bounds.append(
            StartLimit(0, f"has used up its {rate} tokens a minute", _until(throttle, -throttle.tokens, rate))
        )
    if throttle.reported_tokens is not None and throttle.reported_tokens <= 0:
        bounds.append(StartLimit(0, "says that no token is left", throttle.tokens_until))
    return bounds


def _until(throttle: RateLimiterState, missing: float, rate: int) -> float:
    """Return when the bucket will have refilled by this amount."""
    return throttle.filled_at + missing / _refill(rate)


def consume_tokens(throttle: RateLimiterState, requests: int, tokens: int) -> RateLimiterState:
    """Count calls that start and the tokens they are expected to take. Negative numbers correct an estimate."""
    return replace(
        throttle,
        requests=None if throttle.requests is None else throttle.requests - requests,
        tokens=None if throttle.tokens is None else throttle.tokens - tokens,
        today=max(0, throttle.today + requests),  # A correction after midnight may concern calls of the day before.
        reported_requests=None if throttle.reported_requests is None else throttle.reported_requests - requests,
        reported_tokens=None if throttle.reported_tokens is None else throttle.reported_tokens - tokens,
    )


def apply_allowance(
    throttle: RateLimiterState, allowance: Allowance, *, in_flight: int, now: float
) -> RateLimiterState:
    """Apply the provider's last statement of the rates that are left.

    The provider may not have counted the `in_flight` calls yet. So this many fewer may start, until their answers come.
    """
    requests, tokens = allowance.requests, allowance.tokens
    if requests:
        throttle = replace(
            throttle, reported_requests=float(requests.n - in_flight), requests_until=now + requests.for_s
        )
    if tokens:
        throttle = replace(throttle, reported_tokens=float(tokens.n), tokens_until=now + tokens.for_s)
    return throttle


def adapt_limit(
    throttle: RateLimiterState, rates: RateLimits, *, in_flight: int, answered: int, overloaded: int, now: float
) -> RateLimiterState:
    """Return the state with its concurrency limit after a batch of results, which `in_flight` still counts."""
    limit = min(throttle.limit, float(rates.max_concurrency))
    if overloaded:
        if throttle.cut_at is not None and now - throttle.cut_at < COOLDOWN_S:
            return throttle
        return replace(throttle, limit=max(1.0, limit * CUT), cut_at=now)
    if not answered or in_flight < IN_USE * limit:
        return throttle
    growth = answered if throttle.cut_at is None else answered / limit
    return replace(throttle, limit=min(float(rates.max_concurrency), limit + growth))
