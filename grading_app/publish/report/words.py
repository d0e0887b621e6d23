"""Words of generated sentences: counts with nouns, lists and dates. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from evalsite.lib.text.number_format import format_count


def count_noun(n: int, singular: str, plural: str = "") -> str:
    """Return a text such as `1 item` or `12 items`."""
    return f"{format_count(n)} {singular if n == 1 else plural or singular + 's'}"


def join_words(words: Sequence[str]) -> str:
    """Return a text such as `a, b and c`; with semicolons if a word has a comma itself, outside of brackets."""
    if any(", " in re.sub(r"\([^)]*\)", "", word) for word in words):
        return "; ".join(words)
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def format_times(n: int) -> str:
    """Return `once`, or a text such as `3 times`."""
    return "once" if n == 1 else f"{format_count(n)} times"


def format_moment(moment: str) -> str:
    """Return an ISO time as `2026-03-01 14:05 UTC`; a text of another form unchanged."""
    try:
        return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return moment


def format_day(moment: datetime | None) -> str:
    """Return the date in UTC; "" for none."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d") if moment else ""


def format_days(first: datetime | None, last: datetime | None) -> str:
    """Return a text such as `2026-03-01 to 2026-03-04`, or one date."""
    ends = [format_day(first), format_day(last)]
    return ends[0] if ends[0] == ends[1] else " to ".join(filter(None, ends))
