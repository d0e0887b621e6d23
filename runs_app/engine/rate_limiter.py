"""The rate limiter of an endpoint: token buckets, an adaptive concurrency limit, and outages. Pure arithmetic.

A bucket holds the rate of ten seconds. It refills slowly enough that no minute exceeds its rate. The concurrency limit
grows while it is in use and calls are answered. It is cut when the endpoint says that it is overloaded. This is
additive increase, multiplicative decrease (Chiu & Jain 1989). At the start the limit doubles, until the first cut.

A call that fails without an answer is the fault of its trial or of its endpoint. The share of such failures among the
endpoint's recent calls decides. During an outage the endpoint is paused, and PROBES calls at a time test it, after
waits that double. The first answer ends the outage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from runs_app.llm.calls import Allowance, ErrorClass

BURST = 1 / 6  # A bucket's capacity, as a share of a minute's rate.
MIN_REFILL_PER_MINUTE = 0.99  # A bucket of rate 1 holds the whole rate, so without a minimum it would never refill.
FIRST_LIMIT = 16.0
CUT_FACTOR = 0.7
# Calls that were in flight at a cut may report the same overload again, so these reports do not count.
COOLDOWN_S = 2.0
PROBES = 2  # Calls in flight during an outage, which test the endpoint.
MIN_UTILIZATION = 0.75  # Below this share of the limit, answers do not show whether more calls would be answered.


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

    `day` is the provider's date. A batch that uses more tokens than estimated may take a bucket below zero.
    `reported_requests` and `reported_tokens` are the amounts that the provider says are left, valid until
    `requests_until` and `tokens_until`.

    The last four fields belong to `outages`: the signals of recent calls, the start of the outage (None: no outage),
    and the number and time of the failed tests since.
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
    recent: tuple[int, ...] = ()
    down_since: float | None = None
    failed_tests: int = 0
    tested_at: float | None = None

    @classmethod
    def from_row(cls, stored: dict[str, Any]) -> RateLimiterState:
        """Return the state from its stored form. Ignore fields that another version of a worker stored."""
        return cls(**{name: stored[name] for name in cls.__slots__ if name in stored})

    @property
    def tokens_left(self) -> float | None:
        """Return the remaining tokens by our bucket or by the provider, whichever is less; None without a limit."""
        return min((n for n in (self.tokens, self.reported_tokens) if n is not None), default=None)

    def as_row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def refill(self, rates: RateLimits, now: float, day: str) -> RateLimiterState:
        """Return the state at a later time: refill buckets, count a new day from zero, drop expired reports."""
        elapsed = max(0.0, now - self.filled_at)
        return replace(
            self._drop_expired_reports(now),
            requests=_refill_bucket(self.requests, rates.requests_per_minute, elapsed),
            tokens=_refill_bucket(self.tokens, rates.tokens_per_minute, elapsed),
            filled_at=now,
            day=day,
            today=self.today if self.day == day else 0,
        )

    def _drop_expired_reports(self, now: float) -> RateLimiterState:
        state = self
        if self.requests_until is not None and self.requests_until <= now:
            state = replace(state, reported_requests=None, requests_until=None)
        if self.tokens_until is not None and self.tokens_until <= now:
            state = replace(state, reported_tokens=None, tokens_until=None)
        return state

    def count_free_slots(self, rates: RateLimits, in_flight: int) -> int:
        """Return the number of calls that may start now. The state is refilled."""
        return max(0, min(limit.free for limit in self._list_start_limits(rates, in_flight)))

    def find_reached_limit(self, rates: RateLimits, in_flight: int, day_ends: float) -> StartLimit | None:
        """Return the limit that prevents the next call, or None. The state is refilled."""
        limits = self._list_start_limits(rates, in_flight, day_ends)
        return next((limit for limit in limits if limit.free <= 0), None)

    def _list_start_limits(self, rates: RateLimits, in_flight: int, day_ends: float | None = None) -> list[StartLimit]:
        most = int(min(self.limit, rates.max_concurrency)) if rates.adaptive else rates.max_concurrency
        limits = [StartLimit(most - in_flight, f"has {in_flight} of {most} calls in flight")]
        if self.down_since is not None:
            limits.append(StartLimit(PROBES - in_flight, "does not answer, and is being tested"))
        if self.requests is not None and (rate := rates.requests_per_minute):
            wait = self._find_refill_time(1 - self.requests, rate)
            limits.append(StartLimit(int(self.requests), f"has used up its {rate} requests a minute", wait))
        if (per_day := rates.requests_per_day) is not None:
            limits.append(StartLimit(per_day - self.today, f"has used up its {per_day} requests a day", day_ends))
        if self.reported_requests is not None:
            free = int(self.reported_requests)
            limits.append(StartLimit(free, "says that no request is left", self.requests_until))
        return [*limits, *self._list_exhausted_token_limits(rates)]

    def _list_exhausted_token_limits(self, rates: RateLimits) -> list[StartLimit]:
        """Return the exhausted token limits.

        The others allow any number of calls, because the use of a call is not known before its end.
        """
        limits = []
        if self.tokens is not None and self.tokens <= 0 and (rate := rates.tokens_per_minute):
            refilled_at = self._find_refill_time(-self.tokens, rate)
            limits.append(StartLimit(0, f"has used up its {rate} tokens a minute", refilled_at))
        if self.reported_tokens is not None and self.reported_tokens <= 0:
            limits.append(StartLimit(0, "says that no token is left", self.tokens_until))
        return limits

    def _find_refill_time(self, missing: float, rate: int) -> float:
        """Return the time when the bucket will have refilled by this amount."""
        return self.filled_at + missing / _get_refill_per_s(rate)

    def consume_tokens(self, requests: int, tokens: int) -> RateLimiterState:
        """Count calls that start and their expected tokens. Negative numbers correct an estimate."""
        return replace(
            self,
            requests=None if self.requests is None else self.requests - requests,
            tokens=None if self.tokens is None else self.tokens - tokens,
            today=max(0, self.today + requests),  # A correction after midnight may concern calls of the day before.
            reported_requests=None if self.reported_requests is None else self.reported_requests - requests,
            reported_tokens=None if self.reported_tokens is None else self.reported_tokens - tokens,
        )

    def apply_allowance(self, allowance: Allowance, *, in_flight: int, now: float) -> RateLimiterState:
        """Apply the remaining rates that the provider stated last.

        The provider may not have counted the `in_flight` calls yet. So this many fewer may start, until their answers
        come.
        """
        state, requests, tokens = self, allowance.requests, allowance.tokens
        if requests:
            state = replace(
                state, reported_requests=float(requests.n - in_flight), requests_until=now + requests.resets_in_s
            )
        if tokens:
            state = replace(state, reported_tokens=float(tokens.n), tokens_until=now + tokens.resets_in_s)
        return state

    def adapt_limit(
        self, rates: RateLimits, *, in_flight: int, answered: int, overloaded: int, now: float
    ) -> RateLimiterState:
        """Return the state with its concurrency limit after a batch of results. `in_flight` still includes them."""
        limit = min(self.limit, float(rates.max_concurrency))
        if overloaded:
            if self.cut_at is not None and now - self.cut_at < COOLDOWN_S:
                return self
            return replace(self, limit=max(1.0, limit * CUT_FACTOR), cut_at=now)
        if not answered or in_flight < MIN_UTILIZATION * limit:
            return self
        growth = answered if self.cut_at is None else answered / limit
        return replace(self, limit=min(float(rates.max_concurrency), limit + growth))

    def note_signals(self, signals: Sequence[int], now: float) -> RateLimiterState:
        """Return the state after these signals, which arrived together: an outage may begin, go on or end."""
        state = self
        if self.down_since is not None:
            if ANSWERED not in signals:
                return self._extend_outage(now) if signals else self
            state = self.end_outage()
        evidence = [signal for signal in signals if signal != FAILED_AGAIN]
        recent = [*state.recent, *evidence][-max(WINDOW, len(evidence)) :]
        begins = bool(evidence) and is_outage(recent)
        return replace(state, recent=tuple(recent[-WINDOW:]), down_since=now if begins else None)

    def _extend_outage(self, now: float) -> RateLimiterState:
        is_stale = self.tested_at is not None and now - self.tested_at > STALE_S
        return replace(self, down_since=now, failed_tests=0) if is_stale else self

    def end_outage(self) -> RateLimiterState:
        return replace(self, recent=(), down_since=None, failed_tests=0, tested_at=None)

    def schedule_test(self, now: float) -> tuple[RateLimiterState, float]:
        """Return the state after a failed test, and the seconds until the next one."""
        wait_s = compute_test_wait_s(self.failed_tests)
        return replace(self, failed_tests=self.failed_tests + 1, tested_at=now), wait_s

    def measure_outage_s(self, now: float) -> float:
        """Return how long the outage has lasted, in seconds; 0 without an outage that was tested recently."""
        if self.down_since is None or self.tested_at is None or now - self.tested_at > STALE_S:
            return 0.0
        return max(0.0, now - self.down_since)


def _refill_bucket(content: float | None, rate: int | None, elapsed: float) -> float | None:
    if rate is None:
        return None
    capacity = _get_capacity(rate)
    if content is None:
        return capacity
    # A debt lasts one minute at most. So a debt above one minute's rate, for example after a wrong count, is cut.
    return min(capacity, max(content, -float(rate)) + elapsed * _get_refill_per_s(rate))


def _get_capacity(rate: int) -> float:
    return max(1.0, rate * BURST)


def _get_refill_per_s(rate: int) -> float:
    """Return the amount that a bucket refills per second."""
    return max(MIN_REFILL_PER_MINUTE, rate - _get_capacity(rate)) / 60


class StartLimit(NamedTuple):
    """The number of calls that one limit allows to start. `description` completes a sentence about the endpoint.

    If no call may start, `until` is the earliest time for the next, in seconds since 1970. It is None if that depends
    on the calls in flight.
    """

    free: int
    description: str
    until: float | None = None


WINDOW = 20  # The number of recent calls that count, unless more results arrive together.
MIN_SHARE = 0.8
MIN_FAILURES = 5
MIN_TRIALS = 3  # One trial that is called again and again is no outage.
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
# A tested trial waits for this many tests, so the next ones test other trials. Its own request may be at fault.
TURNS = 3
# Nobody has called the endpoint for so long that an earlier outage says nothing. Longer than two calls may take.
STALE_S = 2 * 3600.0

# Signals: the evidence of one call. A failure at the first attempt of a trial is the key of that trial, above 0.
ANSWERED = 0
NOT_CONNECTED = -1
# A trial that failed before may be at fault itself. Its failures prove nothing; otherwise the slowest trials, which
# time out together at the end of a run, would look like an outage.
FAILED_AGAIN = -2

# The failures that an endpoint that is down causes.
OUTAGE_CLASSES = frozenset(
    {
        ErrorClass.UNREACHABLE,
        ErrorClass.CONNECTION,
        ErrorClass.TIMEOUT,
        ErrorClass.SERVER_ERROR,
        ErrorClass.OVERLOADED,
    }
)


def read_signal(call: Mapping[str, Any], trial_id: int, attempts: int) -> int | None:
    """Return the signal of a call with these attempt columns, or None if it says nothing about the endpoint.

    `attempts` are the attempts of its trial, including this one.
    """
    error_class = call.get("error_class")
    if error_class == ErrorClass.UNREACHABLE:
        return NOT_CONNECTED
    if error_class in OUTAGE_CLASSES:
        return trial_id if attempts == 1 else FAILED_AGAIN
    return ANSWERED if call["outcome"] == "ok" or call.get("http_status") else None


def is_outage(signals: Sequence[int]) -> bool:
    """Return whether these calls show an outage: 5 failures of 3 trials or more, and 80 % of the calls."""
    failures = [signal for signal in signals if signal != ANSWERED]
    # No request causes a refused connection, so each of them counts like a trial of its own.
    trials = len(set(failures) - {NOT_CONNECTED}) + failures.count(NOT_CONNECTED)
    return len(failures) >= MIN_FAILURES and trials >= MIN_TRIALS and len(failures) >= MIN_SHARE * len(signals)


def compute_test_wait_s(failed_tests: int) -> float:
    """Return the seconds until the next test. The wait doubles up to a minute."""
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(failed_tests, 60))
