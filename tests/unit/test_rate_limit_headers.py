"""Remaining rates in the headers of providers: every form of header, and no rate from other headers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.engine.rate_limiter import RateLimiterState, RateLimits
from runs_app.llm.calls import Remaining
from runs_app.llm.failures import read_retry_after_s
from runs_app.llm.rate_limit_headers import DEFAULT_RESET_S, LONGEST_S, parse_allowance

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
EPOCH = NOW.timestamp()


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("120ms", 0.12),
        ("1h2m3.5s", LONGEST_S),
        ("7", 7.0),
        (f"{EPOCH + 30:.0f}", 30.0),
        (f"{(EPOCH + 30) * 1000:.0f}", 30.0),
        ("2026-11-20T12:00:05Z", 5.0),
        ("2026-11-20T11:59:05Z", 0.0),
        ("soon", DEFAULT_RESET_S),
        ("inf", DEFAULT_RESET_S),
        (None, DEFAULT_RESET_S),
    ],
)
def test_a_reset_is_a_duration_a_number_or_a_timestamp(reset, seconds):
    headers = {"x-ratelimit-remaining-requests": "3"}
    if reset is not None:
        headers["x-ratelimit-reset-requests"] = reset
    allowance = parse_allowance(headers, NOW).requests
    assert allowance.n == 3
    assert allowance.resets_in_s == pytest.approx(seconds, abs=0.001)


def test_reset_times_use_the_providers_clock():
    headers = {
        "date": "Mon, 02 Mar 2020 08:00:00 GMT",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2020-03-02T08:00:20Z",
    }
    assert parse_allowance(headers).requests == Remaining(0, 20.0)
    assert read_retry_after_s({"date": headers["date"], "retry-after": "Mon, 02 Mar 2020 08:00:30 GMT"}) == 30.0
    assert parse_allowance({**headers, "date": "yesterday"}).requests == Remaining(0, 0.0)


def test_headers_of_each_provider_are_parsed():
    openai = {"x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-tokens": "6ms"}
    assert parse_allowance(openai, NOW).tokens == Remaining(149984, 0.006)
    anthropic = {
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2026-11-20T12:00:02Z",
        "anthropic-ratelimit-input-tokens-remaining": "9000",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-20T12:00:09Z",
        "anthropic-ratelimit-output-tokens-remaining": "800",
        "anthropic-ratelimit-output-tokens-reset": "2026-11-20T12:00:08Z",
    }
    allowance = parse_allowance(anthropic, NOW)
    assert (allowance.requests, allowance.tokens) == (Remaining(49, 2.0), Remaining(800, 8.0))
    assert parse_allowance({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "20"}, NOW).requests == Remaining(
        0, 20.0
    )
    assert parse_allowance({"ratelimit-remaining": "5", "ratelimit-reset": "9"}, NOW).requests == Remaining(5, 9.0)


def test_headers_without_remaining_rates_give_no_allowance():
    assert parse_allowance({"content-type": "application/json", "x-ratelimit-limit-requests": "60"}, NOW) is None
    assert parse_allowance({"x-ratelimit-remaining-requests": "many"}, NOW) is None


@given(st.dictionaries(st.sampled_from(["x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"]), st.text()))
def test_no_header_makes_parsing_fail(headers):
    allowance = parse_allowance(headers, NOW)
    assert allowance is None or 0 <= allowance.requests.resets_in_s <= LONGEST_S


def apply_headers(headers, *, in_flight=0):
    limiter = RateLimiterState(limit=100.0).refill(RATES, EPOCH, "today")
    return limiter.apply_allowance(parse_allowance(headers, NOW), in_flight=in_flight, now=EPOCH)


RATES = RateLimits(max_concurrency=50)


def test_no_call_starts_until_an_exhausted_rate_resets():
    rates = apply_headers({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20s"})
    assert rates.count_free_slots(RATES, 0) == 0
    assert rates.refill(RATES, EPOCH + 19, "today").count_free_slots(RATES, 0) == 0
    assert rates.refill(RATES, EPOCH + 20, "today").count_free_slots(RATES, 0) == 50


def test_calls_in_flight_reduce_the_remaining_requests():
    rates = apply_headers({"x-ratelimit-remaining-requests": "10", "x-ratelimit-reset-requests": "20s"}, in_flight=4)
    assert rates.count_free_slots(RATES, 4) == 6
    assert rates.consume_tokens(6, 0).count_free_slots(RATES, 10) == 0


def test_no_call_starts_without_remaining_tokens():
    rates = apply_headers({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20s"})
    assert rates.count_free_slots(RATES, 0) == 0
    assert rates.tokens_left == 0
    assert rates.refill(RATES, EPOCH + 21, "today").count_free_slots(RATES, 0) == 50


def test_unknown_fields_of_another_version_are_ignored():
    assert RateLimiterState.from_row({"limit": 7.0, "of_tomorrow": 1}) == RateLimiterState(limit=7.0)
