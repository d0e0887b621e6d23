"""Formats of numbers, money and durations."""

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.text import number_format


def remove_thin_spaces(text):
    return text.replace(number_format.THIN_SPACE, " ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        ("", "unknown"),
        (Decimal("NaN"), "unknown"),
        (0, "$0.00"),
        (Decimal("0.000012"), "$0.000012"),
        (Decimal("0.0000123456"), "$0.0000123"),
        (Decimal("0.0834"), "$0.0834"),
        (Decimal("0.5"), "$0.50"),
        (Decimal("0.9949"), "$0.995"),
        (Decimal("0.9951"), "$1.00"),
        (Decimal("1.2404"), "$1.24"),
        (Decimal("1412.5"), "$1 412.50"),
        (Decimal("-3.2"), "−$3.20"),
        ("2.50", "$2.50"),
        (1e-7, "$0.0000001"),
    ],
)
def test_money_is_written_in_sensible_digits(value, text):
    assert remove_thin_spaces(number_format.format_money(value)) == text


@given(st.decimals(min_value="0.0000000001", max_value="1000000", allow_nan=False, allow_infinity=False, places=10))
def test_spent_money_is_never_shown_as_zero_and_is_exact_to_a_cent_or_half_a_percent(amount):
    amount_read = Decimal(remove_thin_spaces(number_format.format_money(amount)).replace(" ", "").removeprefix("$"))
    assert amount_read > 0
    assert abs(amount_read - amount) <= max(Decimal("0.005") if amount >= 1 else 0, amount * Decimal("0.0051"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (999, "999"),
        (1234567, "1 234 567"),
        (-1200, "−1 200"),
        (2.0, "2"),
        (2.5, "2.5"),
        (Decimal("10000"), "10 000"),
    ],
)
def test_counts_have_thin_spaces_between_thousands(value, text):
    assert remove_thin_spaces(number_format.format_count(value)) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_count_that_is_not_a_number_does_not_raise(value):
    assert number_format.format_count(value) == str(value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (-1, "–"),
        (float("nan"), "–"),
        (0, "0 s"),
        (0.85, "850 ms"),
        (0.9999, "1.0 s"),
        (12.44, "12.4 s"),
        (59.97, "1 min 00 s"),
        (245, "4 min 05 s"),
        (3599.6, "1 h 00 min"),
        (11227, "3 h 07 min"),
        (timedelta(days=2, hours=4, minutes=59), "2 d 4 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds, text):
    assert remove_thin_spaces(number_format.format_duration(seconds)) == text


@given(st.floats(min_value=0, max_value=10**6))
def test_a_duration_never_shows_sixty_seconds_or_sixty_minutes(seconds):
    words = remove_thin_spaces(number_format.format_duration(seconds)).split()
    amounts = {unit: float(amount) for amount, unit in zip(words[::2], words[1::2], strict=True)}
    below = {"ms": 1000, "s": 60, "min": 60, "h": 24, "d": 12}
    assert all(amount < below[unit] for unit, amount in amounts.items())


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (4.0, "4"), (-2 / 3, "−0.6667"), (100, "100"), (-1e-9, "0"), (1e6, "1000000"), (0.1 + 0.2, "0.3")],
)
def test_a_score_has_no_trailing_zeros(value, text):
    assert number_format.format_score(value) == text
