"""The wait before a call is tried again."""

from __future__ import annotations

import math
from dataclasses import dataclass

LONGEST_RETRY_AFTER_S = 900.0  # A provider may ask to wait a day, but a request every 15 minutes costs nothing.


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The maximum number of attempts at a trial, and the first and longest wait between attempts, in seconds."""

    max_attempts: int = 3
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0


def compute_backoff_s(
    attempt: int,
    retry_after: float | None = None,
    base: float = 1.0,
    cap: float = 60.0,
    jitter_unit: float = 0.5,
) -> float:
    """Return the seconds to wait after this attempt (the first is 1).

    The wait doubles from `base` up to `cap`. The caller draws `jitter_unit` from 0 to 1, which shortens the wait by up
    to half, so that calls that failed together are not retried together. A Retry-After, in seconds, is the minimum. It
    counts up to a quarter of an hour, and the same draw lengthens it by up to a tenth.
    """
    doubled = min(cap, base * 2.0 ** min(max(attempt, 1) - 1, 60))
    wait = doubled * (1 - jitter_unit / 2)
    if retry_after is None or math.isnan(retry_after):
        return wait
    return max(wait, min(retry_after, LONGEST_RETRY_AFTER_S) * (1 + jitter_unit / 10))
