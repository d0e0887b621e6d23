"""The size of a batch and the times between polls. Pure arithmetic."""

from __future__ import annotations

from decimal import Decimal

MIN_POLL_S = 1.0
MAX_POLL_S = 300.0
MAX_RETRY_S = 600.0
MAX_LOOKUPS = 12  # A batch fails after its provider did not find it this many times in a row.


def compute_batch_size(pending: int, most: int, budget: Decimal | None, reserve_usd: Decimal) -> int:
    """Return the size of a run's next batch: the pending calls, limited by `most` and the budget (None: no budget)."""
    size = max(0, min(pending, most))
    if budget is None or reserve_usd <= 0:
        return size
    return min(size, max(0, int(budget // reserve_usd)))


def compute_poll_interval_s(age_s: float) -> float:
    """Return the seconds until a batch is polled again: a tenth of its age, between 1 and 300."""
    return min(max(age_s / 10, MIN_POLL_S), MAX_POLL_S)


def compute_retry_wait_s(failures: int, retry_after_s: float | None = None) -> float:
    """Return the seconds until the next try after `failures` in a row: 2, 4, 8 ..., or the provider's own wait."""
    wait = min(2.0 ** min(max(failures, 1), 20), MAX_RETRY_S)
    return wait if retry_after_s is None else max(retry_after_s, 1.0)
