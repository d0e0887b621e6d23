"""The remaining rates that a provider states in the headers of its replies. Pure.

Each provider declares its headers. The headers of all are read from every reply, because routers and gateways pass on
those of their backends, and so are those of the IETF draft (draft-ietf-httpapi-ratelimit-headers-07).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from runs_app.llm.calls import Allowance, Remaining
from runs_app.llm.providers import PROVIDERS

LONGEST_S = 900.0  # As for Retry-After: a request every 15 minutes costs nothing.
DEFAULT_RESET_S = 1.0  # If the provider does not state the reset time.
EPOCH_S, EPOCH_MS = 1e9, 1e12  # A plain number above these is a point in time, not a duration.

_REQUESTS = (
    *(pair for provider in PROVIDERS.values() for pair in provider.request_rates),
    ("ratelimit-remaining", "ratelimit-reset"),
)
_TOKENS = tuple(pair for provider in PROVIDERS.values() for pair in provider.token_rates)
_NAMES = frozenset(remaining for remaining, _ in _REQUESTS + _TOKENS)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")


def parse_allowance(headers: Mapping[str, str], now: datetime | None = None) -> Allowance | None:
    """Return the allowance that these headers state, or None. Header names are in lower case."""
    if _NAMES.isdisjoint(headers):
        return None
    now = now or parse_reply_time(headers)
    requests, tokens = _find_least(headers, _REQUESTS, now), _find_least(headers, _TOKENS, now)
    return Allowance(requests, tokens) if requests or tokens else None


def parse_reply_time(headers: Mapping[str, str]) -> datetime:
    """Return the time of this reply by the provider's clock, because its reset times use that clock.

    Without a Date header, return this machine's time, which may be wrong.
    """
    try:
        moment = parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return datetime.now(UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _find_least(headers: Mapping[str, str], names: tuple[tuple[str, str], ...], now: datetime) -> Remaining | None:
    pairs = ((_parse_count(headers.get(remaining)), headers.get(reset)) for remaining, reset in names)
    stated = [Remaining(n, _parse_seconds(reset, now)) for n, reset in pairs if n >= 0]
    return min(stated, key=lambda remaining: remaining.n, default=None)


def _parse_count(text: str | None) -> int:
    """Return the count, or -1 if the text is not a number."""
    try:
        return max(0, int(float(text or "")))
    except (ValueError, OverflowError):
        return -1


def _parse_seconds(text: str | None, now: datetime) -> float:
    """Return the seconds from now to the stated time.

    The text is a duration like `6m0s`, a number of seconds, or a time in seconds, milliseconds or ISO 8601.
    """
    text = (text or "").strip()
    if _DURATION.fullmatch(text):
        return _clamp(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
    try:
        number = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return DEFAULT_RESET_S
        return _clamp((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp())
    if number >= EPOCH_S:
        number = number / (1000 if number >= EPOCH_MS else 1) - now.timestamp()
    return _clamp(number)


def _clamp(seconds: float) -> float:
    return min(max(seconds, 0.0), LONGEST_S) if math.isfinite(seconds) else DEFAULT_RESET_S
