"""The wait before a call is tried again."""

from __future__ import annotations

import math
from dataclasses import dataclass

LONGEST_RETRY_AFTER_S = 900.0  # A provider may ask for a day. One request each quarter of an hour costs nothing.


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts at a trial, and the first and longest wait between two of them, in seconds."""

    max_attempts: int = 3
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0


def backoff_s(
    attempt: int,
    retry_after: float | None = None,
    base: float = 1.0,
    cap: float = 60.0,
    jitter_unit: float = 0.5,
) -> float:
    """Return the seconds to wait after the attempt of that number (from 1).

    The wait doubles from `base` up to `cap`. The caller draws `jitter_unit` from 0 to 1, and it takes off up to half.
    So calls that failed together are not retried together. A Retry-After, in seconds, is the least to wait. It counts
    up to a quarter of an hour, and the same draw adds up to a tenth.
    """
    doubled = min(cap, base * 2.0 ** min(max(attempt, 1) - 1, 60))
    wait = doubled * (1 - jitter_unit / 2)
    if retry_after is None or math.isnan(retry_after):
        return wait
    return max(wait, min(retry_after, LONGEST_RETRY_AFTER_S) * (1 + jitter_unit / 10))
