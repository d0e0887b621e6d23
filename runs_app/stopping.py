"""When a run has seen enough of its own failures to stop."""

from __future__ import annotations

from decimal import Decimal


def should_stop_itself(
    attempts: int, permanent_failures: int, *, threshold: float | Decimal = 0.05, minimum: int = 20
) -> str | None:
    """The reason to stop, for the history; None to go on.

    A run stops when more than `threshold` (a share) of its attempts failed for good, once there are `minimum` of them:
    a wrong key, model name or parameter is then not paid for, or waited for, ten thousand times.
    """
    if attempts < minimum or permanent_failures <= Decimal(str(threshold)) * attempts:
        return None
    return (
        f"{permanent_failures:,} of {attempts:,} attempts failed for good "
        f"({permanent_failures / attempts:.1%}, and {float(threshold):.1%} is the limit)."
    )
