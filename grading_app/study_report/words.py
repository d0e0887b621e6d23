"""Words of generated sentences: counts with nouns, lists and dates. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from evalsite.lib.text.number_format import format_count


def count_noun(n: int, one: str, many: str = "") -> str:
    """Return a text such as `1 item` or `12 items`."""
    return f"{format_count(n)} {one if n == 1 else many or one + 's'}"


def join_words(words: Sequence[str]) -> str:
    """Return a text such as `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def format_day(moment: datetime | None) -> str:
    """Return the date in UTC; "" for none."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d") if moment else ""


def format_days(first: datetime | None, last: datetime | None) -> str:
    """Return a text such as `2026-03-01 to 2026-03-04`, or one date."""
    ends = [format_day(first), format_day(last)]
    return ends[0] if ends[0] == ends[1] else " to ".join(filter(None, ends))
