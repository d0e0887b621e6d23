from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.stats import wilson
from runs_app.engine.outcomes import LONGEST_RETRY_AFTER_S, compute_backoff_s
from runs_app.stopping.rules import MIN_FAILURES, find_stop_reason

units = st.floats(0, 1)


@pytest.mark.parametrize(
    ("attempts", "failures", "stops"),
    [
        (19, 19, False),
        (20, 4, False),
        (20, 5, True),
        (29, 2, False),  # Seven per cent, and no evidence against five.
        (40, 5, True),
        (50, 5, False),
        (100, 6, False),
        (100, 11, True),
        (1319, 2, False),
        (10_000, 520, False),
        (10_000, 560, True),
    ],
)
def test_a_run_stops_when_its_failure_rate_significantly_exceeds_five_percent(attempts, failures, stops):
    assert (find_stop_reason(attempts, failures) is not None) == stops


def test_the_limits_can_be_set():
    assert find_stop_reason(6, 6, threshold=Decimal("0.5"), minimum=5)
    assert find_stop_reason(6, 6, threshold=0.7, minimum=5) is None
    assert find_stop_reason(6, 6, threshold=0.5, minimum=7) is None
    assert find_stop_reason(1000, 1000, threshold=1) is None


def test_a_stop_needs_five_failures_whatever_the_limit():
    assert find_stop_reason(20, MIN_FAILURES - 1, threshold=0) is None
    assert find_stop_reason(20, MIN_FAILURES, threshold=0)


def test_the_stop_reason_contains_the_numbers():
    assert find_stop_reason(1200, 90) == (
        "90 of 1,200 attempts failed permanently (7.5%). "
        "The share is above 6.1% with 95 % confidence, and 5.0% is the limit."
    )


@given(st.integers(0, 500), st.data())
def test_more_failures_never_prevent_a_stop(attempts, data):
    failures = data.draw(st.integers(0, attempts))
    if find_stop_reason(attempts, failures):
        assert find_stop_reason(attempts, attempts)
        assert attempts >= 20
        assert wilson(failures, attempts).low > 0.05


def test_backoff_doubles_up_to_the_cap():
    assert [compute_backoff_s(attempt, jitter_unit=0) for attempt in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert compute_backoff_s(3, base=0.5, cap=1.5, jitter_unit=0) == 1.5


@given(st.integers(0, 10_000), units)
def test_jitter_reduces_the_wait_by_at_most_half(attempt, unit):
    full = compute_backoff_s(attempt, jitter_unit=0)
    assert full / 2 <= compute_backoff_s(attempt, jitter_unit=unit) <= full <= 60


@given(st.integers(1, 20), st.floats(0, 900), units)
def test_retry_after_is_the_minimum_wait(attempt, retry_after, unit):
    assert compute_backoff_s(attempt, retry_after, jitter_unit=unit) >= retry_after


@pytest.mark.parametrize("retry_after", [-5.0, float("nan"), 0.0])
def test_an_invalid_retry_after_is_ignored(retry_after):
    assert compute_backoff_s(2, retry_after) == compute_backoff_s(2)


@pytest.mark.parametrize("retry_after", [1e9, float("inf")])
def test_an_endless_retry_after_is_bounded(retry_after):
    assert compute_backoff_s(1, retry_after, jitter_unit=1) == pytest.approx(LONGEST_RETRY_AFTER_S * 1.1)
