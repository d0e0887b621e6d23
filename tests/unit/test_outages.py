"""Telling an endpoint that is down from single calls that fail."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.engine import rate_limiter
from runs_app.engine.rate_limiter import (
    ANSWERED,
    FAILED_AGAIN,
    LONGEST_WAIT_S,
    NOT_CONNECTED,
    OUTAGE_CLASSES,
    PROBES,
    STALE_S,
    RateLimiterState,
    RateLimits,
    compute_test_wait_s,
    is_outage,
    read_signal,
)
from runs_app.llm.calls import ErrorClass

NOW = 1_000_000.0
DOWN = RateLimiterState(down_since=NOW, tested_at=NOW, failed_tests=1)
trials = st.integers(1, 10_000)
signals = st.one_of(trials, st.sampled_from([ANSWERED, NOT_CONNECTED, FAILED_AGAIN]))


def note_one_by_one(limiter, signals):
    for signal in signals:
        limiter = limiter.note_signals([signal], NOW)
    return limiter


@given(st.lists(trials, min_size=20, max_size=400, unique=True))
def test_many_trials_that_fail_at_once_are_an_outage(failed):
    working = RateLimiterState(recent=(ANSWERED,) * 20)
    assert working.note_signals(failed, NOW).down_since == NOW
    assert note_one_by_one(working, failed).down_since == NOW


@given(st.integers(0, 200), trials, st.integers(1, 200))
def test_one_trial_that_fails_again_and_again_is_no_outage(answered, trial, failures):
    limiter = note_one_by_one(RateLimiterState(), [ANSWERED] * answered + [trial] * failures)
    assert limiter.down_since is None


@given(st.lists(st.lists(trials, min_size=1, max_size=3, unique=True), max_size=100))
def test_trials_that_fail_while_as_many_are_answered_are_no_outage(batches):
    limiter = RateLimiterState(recent=(ANSWERED,) * 20)
    for failed in batches:
        limiter = limiter.note_signals([*failed, *[ANSWERED] * len(failed)], NOW)
        assert limiter.down_since is None


@given(st.lists(st.just(FAILED_AGAIN), max_size=300))
def test_the_slowest_trials_at_the_end_of_a_run_are_no_outage(retries):
    assert note_one_by_one(RateLimiterState(recent=(ANSWERED, 5, 6, 7)), retries).down_since is None


def test_refused_connections_of_one_trial_are_an_outage_because_no_request_causes_them():
    assert note_one_by_one(RateLimiterState(), [NOT_CONNECTED] * 5).down_since == NOW


@given(st.lists(signals, max_size=30), st.lists(signals, max_size=30))
def test_one_answer_ends_an_outage(before, after):
    limiter = DOWN.note_signals([*before, ANSWERED, *after], NOW + 60)
    assert limiter.down_since in (None, NOW + 60)  # The other calls may begin a new outage.
    assert limiter.failed_tests == 0
    assert DOWN.note_signals([ANSWERED], NOW + 60) == RateLimiterState(recent=(ANSWERED,))


@given(st.lists(signals.filter(lambda signal: signal != ANSWERED), max_size=60))
def test_an_outage_lasts_until_the_first_answer(failed):
    assert note_one_by_one(DOWN, failed).down_since == NOW


@given(st.lists(signals, max_size=60), st.lists(signals, min_size=1, max_size=60))
def test_the_order_of_results_that_arrive_together_does_not_matter(stored, together):
    limiter = RateLimiterState(recent=tuple(stored[-20:]))
    orders = (together, together[::-1], sorted(together))
    # Among more than a window of results all count; among fewer, all of them and the newest of the earlier ones.
    assert len({limiter.note_signals(order, NOW).down_since for order in orders}) == 1


@given(st.lists(signals, max_size=100))
def test_an_outage_needs_five_failures_and_four_fifths_of_the_calls(calls):
    failures = [signal for signal in calls if signal != ANSWERED]
    if is_outage(calls):
        assert len(failures) >= 5
        assert len(failures) >= 0.8 * len(calls)


@given(st.integers(0, 10_000))
def test_the_wait_for_the_next_test_doubles_up_to_a_minute(failed_tests):
    wait_s = compute_test_wait_s(failed_tests)
    assert wait_s <= compute_test_wait_s(failed_tests + 1) <= min(LONGEST_WAIT_S, 2 * wait_s)
    limiter, scheduled_s = replace(DOWN, failed_tests=failed_tests).schedule_test(NOW + 9)
    assert (limiter.failed_tests, limiter.tested_at, scheduled_s) == (failed_tests + 1, NOW + 9, wait_s)


@given(st.integers(0, 100))
def test_only_a_few_calls_test_an_endpoint_that_is_down(in_flight):
    free = DOWN.count_free_slots(RateLimits(max_concurrency=1000, adaptive=False), in_flight)
    assert free == max(0, PROBES - in_flight)


def test_the_duration_of_an_outage_counts_only_while_somebody_calls_the_endpoint():
    assert RateLimiterState().measure_outage_s(NOW) == 0
    assert replace(DOWN, tested_at=NOW + 100).measure_outage_s(NOW + 130) == 130
    assert DOWN.measure_outage_s(NOW + STALE_S + 1) == 0
    assert DOWN.note_signals([NOT_CONNECTED], NOW + STALE_S + 1).down_since == NOW + STALE_S + 1


@pytest.mark.parametrize("error_class", sorted(OUTAGE_CLASSES - {ErrorClass.UNREACHABLE}))
def test_only_a_first_attempt_is_evidence_for_an_outage(error_class):
    call = {"outcome": "transient", "error_class": error_class, "http_status": 500}
    assert read_signal(call, 17, attempts=1) == 17
    assert read_signal(call, 17, attempts=2) == FAILED_AGAIN


@pytest.mark.parametrize(
    ("call", "signal"),
    [
        ({"outcome": "ok"}, ANSWERED),
        ({"outcome": "permanent", "error_class": "bad_request", "http_status": 400}, ANSWERED),
        ({"outcome": "endpoint", "error_class": "rate_limited", "http_status": 429}, ANSWERED),
        ({"outcome": "transient", "error_class": "malformed_reply", "http_status": 200}, ANSWERED),
        ({"outcome": "permanent", "error_class": "missing_key", "http_status": None}, None),
        ({"outcome": "cached"}, None),
        ({"outcome": "released"}, None),
        ({"outcome": "endpoint", "error_class": "unreachable"}, NOT_CONNECTED),
    ],
)
def test_every_reply_shows_that_the_endpoint_is_up(call, signal):
    assert read_signal(call, 17, attempts=1) == signal


def test_every_class_of_an_outage_may_be_tried_again():
    assert all(one.kind != "permanent" for one in rate_limiter.OUTAGE_CLASSES)
