"""How fast an endpoint may be asked: its rates, and a concurrency limit that learns. Pure arithmetic.

Rates are token buckets. A bucket holds ten seconds' worth and refills so slowly that no minute passes its rate.
The limit grows while calls are answered and it is in use, and is cut when the endpoint says that it is overloaded:
additive increase, multiplicative decrease (Chiu & Jain 1989), after a start that doubles until the first cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from runs_app.providers.allowances import Allowance

BURST = 1 / 6  # Of a minute's rate that a bucket holds.
FIRST_LIMIT = 16.0
CUT = 0.7
COOLDOWN_S = 2.0  # Calls that were in flight at a cut may still report the same overload: that is no news.
IN_USE = 0.75  # Of the limit: below it, answers say nothing about whether more would be answered.


@dataclass(frozen=True, slots=True)
class Rates:
    """What an operator allows; None is no bound. Changing it takes hold at the next claim."""

    max_concurrency: int
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    requests_per_day: int | None = None
    adaptive: bool = True


@dataclass(frozen=True, slots=True)
class Throttle:
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
    def of(cls, stored: dict[str, Any]) -> Throttle:
        """A worker of another version may have stored what this one does not know."""
        return cls(**{name: stored[name] for name in cls.__slots__ if name in stored})

    @property
    def tokens_left(self) -> float | None:
        """By our bucket and by the provider's word, whichever is less; None where nothing bounds them."""
        return min((n for n in (self.tokens, self.said_tokens) if n is not None), default=None)

    def as_row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def refilled(throttle: Throttle, rates: Rates, now: float, day: str) -> Throttle:
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


def _without_old_words(throttle: Throttle, now: float) -> Throttle:
    if throttle.requests_until is not None and throttle.requests_until <= now:
        throttle = replace(throttle, said_requests=None, requests_until=None)
    if throttle.tokens_until is not None and throttle.tokens_until <= now:
        throttle = replace(throttle, said_tokens=None, tokens_until=None)
    return throttle


def _bucket(content: float | None, rate: int | None, passed: float) -> float | None:
    if rate is None:
        return None
    capacity = max(1.0, rate * BURST)
    if content is None:
        return capacity
    # What was used counts for a minute: a debt beyond one minute's rate, as of a count of tokens gone mad, is none.
    return min(capacity, max(content, -float(rate)) + passed * max(0.0, rate - capacity) / 60)


def free_slots(throttle: Throttle, rates: Rates, in_flight: int) -> int:
    """Calls that may start now. `throttle` is refilled."""
    bounds = [rates.max_concurrency - in_flight]
    if rates.adaptive:
        bounds.append(int(min(throttle.limit, rates.max_concurrency)) - in_flight)
    if throttle.requests is not None:
        bounds.append(int(throttle.requests))
    if rates.requests_per_day is not None:
        bounds.append(rates.requests_per_day - throttle.today)
    if throttle.said_requests is not None:
        bounds.append(int(throttle.said_requests))
    if throttle.tokens_left is not None and throttle.tokens_left <= 0:
        return 0
    return max(0, min(bounds))


def taken(throttle: Throttle, requests: int, tokens: int) -> Throttle:
    """So many calls start, which are expected to take so many tokens; negative numbers correct an estimate."""
    return replace(
        throttle,
        requests=None if throttle.requests is None else throttle.requests - requests,
        tokens=None if throttle.tokens is None else throttle.tokens - tokens,
        today=max(0, throttle.today + requests),  # What is corrected after midnight was taken on the day before.
        said_requests=None if throttle.said_requests is None else throttle.said_requests - requests,
        said_tokens=None if throttle.said_tokens is None else throttle.said_tokens - tokens,
    )


def heard(throttle: Throttle, allowance: Allowance, *, in_flight: int, now: float) -> Throttle:
    """The provider's last word on what is left of its rates.

    It may not have seen the calls that are `in_flight` yet: so many fewer may start, until their answers say more.
    """
    requests, tokens = allowance.requests, allowance.tokens
    if requests:
        throttle = replace(throttle, said_requests=float(requests.n - in_flight), requests_until=now + requests.for_s)
    if tokens:
        throttle = replace(throttle, said_tokens=float(tokens.n), tokens_until=now + tokens.for_s)
    return throttle


def learned(
    throttle: Throttle, rates: Rates, *, in_flight: int, answered: int, overloaded: int, now: float
) -> Throttle:
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
