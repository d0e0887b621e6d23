"""How fast an endpoint may be asked: its rates, and a concurrency limit that learns. Pure arithmetic.

Rates are token buckets. A bucket holds ten seconds' worth and refills so slowly that no minute passes its rate.
The limit grows while calls are answered and it is in use, and is cut when the endpoint says that it is overloaded:
additive increase, multiplicative decrease (Chiu & Jain 1989), after a start that doubles until the first cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from runs_app.llm.rate_limit_headers import Allowance

BURST = 1 / 6  # Of a minute's rate that a bucket holds.
SLOWEST = 0.99  # A minute. A rate of one is all in the bucket, which would never refill: so it does, after a minute.
FIRST_LIMIT = 16.0
CUT = 0.7
COOLDOWN_S = 2.0  # Calls that were in flight at a cut may still report the same overload: that is no news.
IN_USE = 0.75  # Of the limit: below it, answers say nothing about whether more would be answered.


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What an operator allows; None is no bound. Changing it takes hold at the next claim."""

    max_concurrency: int
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    requests_per_day: int | None = None
    adaptive: bool = True


@dataclass(frozen=True, slots=True)
class RateLimiterState:
    """What is remembered of an endpoint. Times are seconds since 1970 by the database's clock; `day` is the
    provider's. The buckets may go below zero by what one batch used beyond its estimate: then they refill first.
    `said_...` is what the provider says is left, which holds until the moment of the same name."""

    limit: float = FIRST_LIMIT
    cut_at: float | None = None
    requests: float | None = None
    tokens: float | None = None
    filled_at: float = 0.0
    day: str = ""
    today: int = 0
    said_requests: float | None = None
    said_tokens: float | None = None
    requests_until: float | None = None
    tokens_until: float | None = None

    @classmethod
    def of(cls, stored: dict[str, Any]) -> RateLimiterState:
        """A worker of another version may have stored what this one does not know."""
        return cls(**{name: stored[name] for name in cls.__slots__ if name in stored})

    @property
    def tokens_left(self) -> float | None:
        """By our bucket and by the provider's word, whichever is less; None where nothing bounds them."""
        return min((n for n in (self.tokens, self.said_tokens) if n is not None), default=None)

    def as_row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def refill(throttle: RateLimiterState, rates: RateLimits, now: float, day: str) -> RateLimiterState:
    """The same a moment later: buckets fuller, the day's count begun again on a new day, old words forgotten."""
    passed = max(0.0, now - throttle.filled_at)
    return replace(
        _without_old_words(throttle, now),
        requests=_bucket(throttle.requests, rates.requests_per_minute, passed),
        tokens=_bucket(throttle.tokens, rates.tokens_per_minute, passed),
        filled_at=now,
        day=day,
        today=throttle.today if throttle.day == day else 0,
    )


def _without_old_words(throttle: RateLimiterState, now: float) -> RateLimiterState:
    if throttle.requests_until is not None and throttle.requests_until <= now:
        throttle = replace(throttle, said_requests=None, requests_until=None)
    if throttle.tokens_until is not None and throttle.tokens_until <= now:
        throttle = replace(throttle, said_tokens=None, tokens_until=None)
    return throttle


def _bucket(content: float | None, rate: int | None, passed: float) -> float | None:
    if rate is None:
        return None
    capacity = _capacity(rate)
    if content is None:
        return capacity
    # What was used counts for a minute: a debt beyond one minute's rate, as of a count of tokens gone mad, is none.
    return min(capacity, max(content, -float(rate)) + passed * _refill(rate))


def _capacity(rate: int) -> float:
    return max(1.0, rate * BURST)


def _refill(rate: int) -> float:
    """Of a bucket, a second."""
    return max(SLOWEST, rate - _capacity(rate)) / 60


class SlotBound(NamedTuple):
    """How many calls one of the limits lets start, and what it is, after the endpoint's name. Where it lets none start:
    until when at least, in seconds since 1970; None where that rests on when calls land."""

    free: int
    said: str
    until: float | None = None


def free_slots(throttle: RateLimiterState, rates: RateLimits, in_flight: int) -> int:
    """Calls that may start now. `throttle` is refilled."""
    return max(0, min(bound.free for bound in _bounds(throttle, rates, in_flight)))


def find_obstacle(throttle: RateLimiterState, rates: RateLimits, in_flight: int, day_ends: float) -> SlotBound | None:
    """What keeps the next call from starting, or None where it may. `throttle` is refilled; so is its day."""
    bounds = _bounds(throttle, rates, in_flight, day_ends)
    return next((bound for bound in bounds if bound.free <= 0), None)


def _bounds(
    throttle: RateLimiterState, rates: RateLimits, in_flight: int, day_ends: float | None = None
) -> list[SlotBound]:
    most = int(min(throttle.limit, rates.max_concurrency)) if rates.adaptive else rates.max_concurrency
    bounds = [SlotBound(most - in_flight, f"has {in_flight} of {most} calls in flight")]
    if throttle.requests is not None and (rate := rates.requests_per_minute):
        wait = _until(throttle, 1 - throttle.requests, rate)
        bounds.append(SlotBound(int(throttle.requests), f"has used up its {rate} requests a minute", wait))
    if rates.requests_per_day is not None:
        left = rates.requests_per_day - throttle.today
        bounds.append(SlotBound(left, f"has used up its {rates.requests_per_day} requests a day", day_ends))
    if throttle.said_requests is not None:
        bounds.append(SlotBound(int(throttle.said_requests), "says that no request is left", throttle.requests_until))
    return [*bounds, *_empty_of_tokens(throttle, rates)]


def _empty_of_tokens(throttle: RateLimiterState, rates: RateLimits) -> list[SlotBound]:
    """Tokens bound calls only once there are none: how many a call takes is known when it has ended."""
    bounds = []
    if throttle.tokens is not None and throttle.tokens <= 0 and (rate := rates.tokens_per_minute):
        bounds.append(SlotBound(0, f"has used up its {rate} tokens a minute", _until(throttle, -throttle.tokens, rate)))
    if throttle.said_tokens is not None and throttle.said_tokens <= 0:
        bounds.append(SlotBound(0, "says that no token is left", throttle.tokens_until))
    return bounds


def _until(throttle: RateLimiterState, missing: float, rate: int) -> float:
    """When so much will have run into the bucket."""
    return throttle.filled_at + missing / _refill(rate)


def consume_tokens(throttle: RateLimiterState, requests: int, tokens: int) -> RateLimiterState:
    """So many calls start, which are expected to take so many tokens; negative numbers correct an estimate."""
    return replace(
        throttle,
        requests=None if throttle.requests is None else throttle.requests - requests,
        tokens=None if throttle.tokens is None else throttle.tokens - tokens,
        today=max(0, throttle.today + requests),  # What is corrected after midnight was taken on the day before.
        said_requests=None if throttle.said_requests is None else throttle.said_requests - requests,
        said_tokens=None if throttle.said_tokens is None else throttle.said_tokens - tokens,
    )


def apply_allowance(
    throttle: RateLimiterState, allowance: Allowance, *, in_flight: int, now: float
) -> RateLimiterState:
    """The provider's last word on what is left of its rates.

    It may not have seen the calls that are `in_flight` yet: so many fewer may start, until their answers say more.
    """
    requests, tokens = allowance.requests, allowance.tokens
    if requests:
        throttle = replace(throttle, said_requests=float(requests.n - in_flight), requests_until=now + requests.for_s)
    if tokens:
        throttle = replace(throttle, said_tokens=float(tokens.n), tokens_until=now + tokens.for_s)
    return throttle


def adapt_limit(
    throttle: RateLimiterState, rates: RateLimits, *, in_flight: int, answered: int, overloaded: int, now: float
) -> RateLimiterState:
    """The limit after a batch of results; `in_flight` still counts them."""
    limit = min(throttle.limit, float(rates.max_concurrency))
    if overloaded:
        if throttle.cut_at is not None and now - throttle.cut_at < COOLDOWN_S:
            return throttle
        return replace(throttle, limit=max(1.0, limit * CUT), cut_at=now)
    if not answered or in_flight < IN_USE * limit:
        return throttle
    growth = answered if throttle.cut_at is None else answered / limit
    return replace(throttle, limit=min(float(rates.max_concurrency), limit + growth))
