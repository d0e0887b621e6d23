"""Number formats for people: money, counts and durations. Pure functions from values to plain text."""

from datetime import timedelta
from decimal import Decimal

THIN_SPACE = "\u202f"
MISSING = "–"

Number = int | float | Decimal


def format_count(value: Number | None) -> str:
    """Format 1234567 as "1 234 567" with narrow no-break spaces. Keep the decimals of other numbers."""
    if value is None:
        return MISSING
    whole = (
        int(value) if value == value and value not in (float("inf"), float("-inf")) and value == int(value) else value
    )
    return f"{whole:,}".replace(",", THIN_SPACE).replace("-", "−")


def format_score(value: float) -> str:
    """Format a score with at most four decimals and no trailing zeros: 0.5, 4, −0.6667."""
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text.replace("-", "−")


def format_money(value: Number | str | None) -> str:
    """Format US dollars: cents from one dollar on, three significant digits below. None is "unknown", never zero."""
    if value is None or value == "":
        return "unknown"
    amount = Decimal(str(value))
    if not amount.is_finite():
        return "unknown"
    sign = "−" if amount < 0 else ""
    return f"{sign}${_format_amount(abs(amount))}"


def _format_amount(amount: Decimal) -> str:
    if amount == 0 or amount >= Decimal("0.995"):
        return f"{amount:,.2f}".replace(",", THIN_SPACE)
    places = max(2, 2 - amount.adjusted())
    text = f"{amount:.{places}f}"
    whole, _, decimals = text.partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def format_duration(seconds: Number | timedelta | None) -> str:
    """Format a duration in at most two units: "850 ms", "12.4 s", "4 min 05 s", "3 h 07 min", "2 d 4 h"."""
    if seconds is None:
        return MISSING
    total = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if total != total or total < 0 or total == float("inf"):
        return MISSING
    return _format_short_duration(total) if total < 59.95 else _format_long_duration(round(total))


def _format_short_duration(total: float) -> str:
    if total == 0:
        return f"0{THIN_SPACE}s"
    return f"{total * 1000:.0f}{THIN_SPACE}ms" if total < 0.9995 else f"{total:.1f}{THIN_SPACE}s"


def _format_long_duration(total: int) -> str:
    if total < 3600:
        return f"{total // 60}{THIN_SPACE}min {total % 60:02}{THIN_SPACE}s"
    if total < 86400:
        return f"{total // 3600}{THIN_SPACE}h {total % 3600 // 60:02}{THIN_SPACE}min"
    return f"{total // 86400}{THIN_SPACE}d {total % 86400 // 3600}{THIN_SPACE}h"
