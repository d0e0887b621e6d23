"""The size of a batch and the times between polls. Pure arithmetic."""

from __future__ import annotations

from decimal import Decimal

MIN_POLL_S = 1.0
MAX_POLL_S = 300.0
LONGEST_RETRY_S = 600.0
MAX_LOOKUPS = 12  # A batch is given up if its provider does not know it this many times in a row.


def batch_size(pending: int, most: int, left_usd: Decimal | None, each_usd: Decimal) -> int:
    """Return the size of a run's next batch: the pending calls, limited by `most` and the budget (None: no budget)."""
    wanted = max(0, min(pending, most))
    if left_usd is None or each_usd <= 0:
        return wanted
    return min(wanted, max(0, int(left_usd // each_usd)))


def poll_interval_s(age_s: float) -> float:
    """Return the seconds until a batch is polled again: a tenth of its age, between 1 and 300."""
    return min(max(age_s / 10, MIN_POLL_S), MAX_POLL_S)


def retry_wait_s(failures: int, asked_for: float | None = None) -> float:
    """Return the seconds until the next try after `failures` in a row: 2, 4, 8 ... or the wait that was asked for."""
    wait = min(2.0 ** min(max(failures, 1), 20), LONGEST_RETRY_S)
    return wait if asked_for is None else max(asked_for, 1.0)
