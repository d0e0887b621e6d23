"""An endpoint's rates and its learned limit, as arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs_app.engine.rate_limiter import CUT_FACTOR, FIRST_LIMIT, RateLimiterState, RateLimits

steps = st.lists(st.tuples(st.floats(0, 30), st.integers(0, 200)), min_size=1, max_size=60)


def list_starts(rates, wishes):
    """Return the times at which the admitted calls start."""
    limiter, now, starts = RateLimiterState(), 1000.0, []
    for pause, n_wanted in wishes:
        now += pause
        limiter = limiter.refill(rates, now, "2026-01-01")
        n = min(n_wanted, limiter.count_free_slots(rates, in_flight=0))
        limiter = limiter.consume_tokens(n, 0)
        starts += [now] * n
    return starts


@pytest.mark.slow
@given(steps, st.integers(1, 600))
def test_no_minute_exceeds_the_rate_of_requests(wishes, rpm):
    rates = RateLimits(max_concurrency=1000, requests_per_minute=rpm, adaptive=False)
    starts = list_starts(rates, wishes)
    for begin in starts:
        assert sum(begin <= start < begin + 60 for start in starts) <= rpm


@given(steps, st.integers(1, 300))
def test_no_day_exceeds_its_quota(wishes, rpd):
    assert len(list_starts(RateLimits(1000, requests_per_day=rpd, adaptive=False), wishes)) <= rpd


def test_a_rate_of_one_per_minute_starts_one_call_per_minute():
    assert list_starts(RateLimits(10, requests_per_minute=1, adaptive=False), [(31, 5)] * 6) == [1031, 1093, 1155]


def test_a_new_day_begins_a_new_count():
    rates = RateLimits(10, requests_per_day=5, adaptive=False)
    limiter = RateLimiterState().refill(rates, 0.0, "2026-01-01").consume_tokens(5, 0)
    assert limiter.refill(rates, 10.0, "2026-01-01").count_free_slots(rates, 0) == 0
    assert limiter.refill(rates, 20.0, "2026-01-02").count_free_slots(rates, 0) == 5


def test_an_overdrawn_token_bucket_refills_before_the_next_call():
    rates = RateLimits(10, tokens_per_minute=6000, adaptive=False)
    limiter = RateLimiterState().refill(rates, 0.0, "").consume_tokens(1, 6000)
    assert limiter.tokens == -5000
    assert limiter.refill(rates, 30.0, "").count_free_slots(rates, 0) == 0
    assert limiter.refill(rates, 90.0, "").count_free_slots(rates, 0) == 10


def test_an_absurd_token_count_blocks_an_endpoint_for_little_more_than_a_minute():
    rates = RateLimits(10, tokens_per_minute=6000, adaptive=False)
    limiter = RateLimiterState().refill(rates, 0.0, "").consume_tokens(1, 2**31)
    assert limiter.refill(rates, 60.0, "").count_free_slots(rates, 0) == 0
    assert limiter.refill(rates, 75.0, "").count_free_slots(rates, 0) == 10


def test_calls_released_after_midnight_do_not_raise_the_new_days_quota():
    rates = RateLimits(10, requests_per_day=5, adaptive=False)
    limiter = RateLimiterState().refill(rates, 0.0, "2026-01-01").consume_tokens(5, 0)
    over_midnight = limiter.refill(rates, 20.0, "2026-01-02").consume_tokens(-3, 0)
    assert over_midnight.count_free_slots(rates, 0) == 5


def test_a_removed_rate_limits_nothing():
    before = RateLimiterState().refill(RateLimits(10, requests_per_minute=6), 0.0, "")
    assert before.consume_tokens(1, 0).refill(RateLimits(10), 1.0, "").requests is None


def test_the_limit_doubles_until_the_first_cut_and_then_grows_by_one_per_round():
    rates = RateLimits(1000)
    limiter = RateLimiterState().adapt_limit(rates, in_flight=16, answered=16, overloaded=0, now=0.0)
    assert limiter.limit == 2 * FIRST_LIMIT
    cut = limiter.adapt_limit(rates, in_flight=32, answered=0, overloaded=3, now=1.0)
    assert cut.limit == pytest.approx(32 * CUT_FACTOR)
    grown = cut.adapt_limit(rates, in_flight=22, answered=22, overloaded=0, now=2.0)
    assert grown.limit == pytest.approx(cut.limit + 22 / cut.limit)


def test_one_overload_cuts_the_limit_once():
    rates = RateLimits(1000)
    first = RateLimiterState().adapt_limit(rates, in_flight=16, answered=0, overloaded=1, now=10.0)
    assert first.adapt_limit(rates, in_flight=15, answered=0, overloaded=15, now=10.5) == first
    assert first.adapt_limit(rates, in_flight=15, answered=0, overloaded=1, now=20.0).limit < first.limit


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5), st.integers(0, 60)), max_size=50), st.integers(1, 64))
def test_the_limit_stays_between_one_and_the_operators_maximum(batches, most):
    rates, limiter = RateLimits(most), RateLimiterState(limit=min(FIRST_LIMIT, most))
    for index, (answered, overloaded, in_flight) in enumerate(batches):
        limiter = limiter.adapt_limit(
            rates, in_flight=in_flight, answered=answered, overloaded=overloaded, now=float(index)
        )
        assert 1 <= limiter.limit <= most


def test_an_idle_endpoint_keeps_its_limit():
    assert (
        RateLimiterState().adapt_limit(RateLimits(100), in_flight=2, answered=2, overloaded=0, now=0.0).limit
        == FIRST_LIMIT
    )
