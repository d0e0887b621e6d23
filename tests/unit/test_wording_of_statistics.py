"""The wording of statistics in text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.results.statistic_format import (
    format_coefficient,
    format_number,
    format_p,
    format_p_equation,
    format_share,
)


@pytest.mark.parametrize(
    ("formatted", "text"),
    [
        (format_number(-0.0004, 3), "0.000"),
        (format_number(-0.0006, 3), "−0.001"),
        (format_number(None), "–"),
        (format_share(-1e-9), "0.0 %"),
    ],
)
def test_values_that_round_to_zero_have_no_sign(formatted, text):
    assert formatted == text


def test_sums_that_differ_in_the_last_bit_have_one_text():
    mean = 2477.4 / 40
    neighbours = {mean, math.nextafter(mean, 0), math.nextafter(mean, 100), 61.935}
    assert len(neighbours) == 3
    assert len({format_number(value) for value in neighbours}) == 1
    assert len({format_share(value / 100) for value in neighbours}) == 1


@pytest.mark.parametrize(
    ("formatted", "text"),
    [
        (format_coefficient(0.93), ".93"),
        (format_coefficient(-0.93), "−.93"),
        (format_coefficient(-0.004), ".00"),
        (format_coefficient(0.999), "1.00"),
        (format_coefficient(-3.217), "−3.22"),  # An ICC can be below -1.
        (format_coefficient(None), "–"),
        (format_p(0.0124), ".012"),
        (format_p(0.0004), "< .001"),
        (format_p(1.0), "1.000"),
        (format_p_equation(0.0124), "= .012"),
    ],
)
def test_coefficients_and_p_have_no_zero_before_the_point(formatted, text):
    assert formatted == text


@pytest.mark.slow
@given(st.floats(-1e6, 1e6))
def test_a_number_is_written_as_it_rounds(value):
    assert float(format_number(value).replace("−", "-")) == pytest.approx(round(value, 2), abs=1e-9)
