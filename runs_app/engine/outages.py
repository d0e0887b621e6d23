"""Outages: the rule that tells an endpoint that is down from single calls that fail. Pure arithmetic.

A call that fails without an answer is the fault of its trial or of its endpoint. The share of such failures among the
endpoint's recent calls decides. During an outage the endpoint is paused, and PROBES calls at a time test it, after
waits that double. The first answer ends the outage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runs_app.engine.rate_limiter import RateLimiterState
from runs_app.llm.calls import ErrorClass

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


def note_signals(limiter: RateLimiterState, signals: Sequence[int], now: float) -> RateLimiterState:
    """Return the state after these signals, which arrived together: an outage may begin, go on or end."""
    if limiter.down_since is not None:
        if ANSWERED not in signals:
            return _extend_outage(limiter, now) if signals else limiter
        limiter = end_outage(limiter)
    evidence = [signal for signal in signals if signal != FAILED_AGAIN]
    recent = [*limiter.recent, *evidence][-max(WINDOW, len(evidence)) :]
    begins = bool(evidence) and is_outage(recent)
    return replace(limiter, recent=tuple(recent[-WINDOW:]), down_since=now if begins else None)


def _extend_outage(limiter: RateLimiterState, now: float) -> RateLimiterState:
    is_stale = limiter.tested_at is not None and now - limiter.tested_at > STALE_S
    return replace(limiter, down_since=now, failed_tests=0) if is_stale else limiter


def end_outage(limiter: RateLimiterState) -> RateLimiterState:
    return replace(limiter, recent=(), down_since=None, failed_tests=0, tested_at=None)


def schedule_test(limiter: RateLimiterState, now: float) -> tuple[RateLimiterState, float]:
    """Return the state after a failed test, and the seconds until the next one."""
    wait_s = compute_test_wait_s(limiter.failed_tests)
    return replace(limiter, failed_tests=limiter.failed_tests + 1, tested_at=now), wait_s


def compute_test_wait_s(failed_tests: int) -> float:
    """Return the seconds until the next test. The wait doubles up to a minute."""
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(failed_tests, 60))


def measure_outage_s(limiter: RateLimiterState, now: float) -> float:
    """Return how long the outage has lasted, in seconds; 0 without an outage that was tested recently."""
    if limiter.down_since is None or limiter.tested_at is None or now - limiter.tested_at > STALE_S:
        return 0.0
    return max(0.0, now - limiter.down_since)
