"""Functions that format statistics as text, as in a paper.

Numbers on a scale have two decimals, and so do the ends of their intervals; standard errors have three. Shares have one
decimal in percent.
Coefficients and p have no zero before the decimal point, since neither can be far above 1 (APA, 7th edition, 6.36).
"""

from __future__ import annotations

from evalsite.lib.text.number_format import MISSING

MINUS = "−"


def format_number(value: float | None, places: int = 2) -> str:
    """Format a number with so many decimals. "z" writes 0.00, not −0.00.

    Two sums of the same numbers can differ in the last bit, so a number is rounded to nine decimals before.
    """
    return MISSING if value is None else f"{round(value, 9):z.{places}f}".replace("-", MINUS)


def format_share(share: float | None, places: int = 1) -> str:
    return MISSING if share is None else f"{format_number(100 * share, places)} %"


def format_points(share: float | None, places: int = 1) -> str:
    """Format a difference of shares in percentage points."""
    return MISSING if share is None else f"{format_number(100 * share, places)} pp"


def format_points_interval(low: float | None, high: float | None) -> str:
    return MISSING if low is None or high is None else f"{format_interval(100 * low, 100 * high, 1)} pp"


def format_mean(mean: float | None, is_share: bool) -> str:
    return format_share(mean) if is_share else format_number(mean)


def format_mean_interval(low: float | None, high: float | None, is_share: bool) -> str:
    return format_share_interval(low, high) if is_share else format_interval(low, high)


def format_difference(difference: float | None, is_share: bool, places: int = 2) -> str:
    """Format a difference or a standard error of means, in percentage points for shares."""
    return format_points(difference) if is_share else format_number(difference, places)


def format_difference_interval(low: float | None, high: float | None, is_share: bool) -> str:
    return format_points_interval(low, high) if is_share else format_interval(low, high)


def format_coefficient(r: float | None) -> str:
    """Format a correlation or another coefficient."""
    if r is None:
        return MISSING
    return ("" if r > -0.005 else MINUS) + f"{abs(r):.2f}".removeprefix("0")


def format_coefficient_interval(low: float | None, high: float | None) -> str:
    return MISSING if low is None or high is None else f"{format_coefficient(low)} to {format_coefficient(high)}"


def format_interval(low: float | None, high: float | None, places: int = 2) -> str:
    return MISSING if low is None or high is None else f"{format_number(low, places)} to {format_number(high, places)}"


def format_share_interval(low: float | None, high: float | None) -> str:
    return MISSING if low is None or high is None else f"{format_interval(100 * low, 100 * high, 1)} %"


def add_sign(text: str) -> str:
    """Add a plus sign to the text of a positive difference."""
    is_above = any(digit in text for digit in "123456789") and not text.startswith(MINUS)
    return f"+{text}" if is_above else text


def format_p(p: float | None) -> str:
    if p is None:
        return MISSING
    return "< .001" if p < 0.0005 else f"{p:.3f}".removeprefix("0")


def format_p_equation(p: float) -> str:
    """Return p for a sentence, such as '= .012' or '< .001'."""
    text = format_p(p)
    return text if text.startswith("<") else f"= {text}"
