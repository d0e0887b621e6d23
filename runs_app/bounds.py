"""The allowed range of each number in a design, an endpoint and a model. Pure functions.

Forms, experiment files and the database all use these ranges. A number without a bound can stop more than its own
design. For example, a lease of 1e300 seconds makes PostgreSQL refuse the statement that claims trials.
That statement claims for every run of an endpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

MAX_TOKENS = 10_000_000  # Per answer.
MAX_USD = 10_000_000
DAY_S = 86_400
EXACT_INTEGER = 2**53 - 1  # The largest integer that every JSON reader represents exactly.


@dataclass(frozen=True, slots=True)
class Bound:
    """A closed range. NaN and the infinities lie outside every range."""

    low: float
    high: float
    unit: str = ""

    def __str__(self) -> str:
        return f"between {_format_number(self.low)} and {_format_number(self.high)}" + (
            f" {self.unit}" if self.unit else ""
        )

    def contains(self, value: float | Decimal) -> bool:
        """Return whether the value is a finite number within the range."""
        return (isinstance(value, int) or math.isfinite(value)) and self.low <= value <= self.high

    def check(self, value: Any) -> Any:
        """Return the value, or raise ValueError with the range if the value is a number outside it."""
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and not self.contains(value):
            raise ValueError(f"must be {self}")
        return value


def _format_number(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,g}"


PRICE = Bound(0, 100_000, "US dollars per million tokens")
SHARE = Bound(0, 1)
WIDTH = Bound(0, 1_000_000)
BUDGET = Bound(0, MAX_USD, "US dollars")
CALLS = Bound(1, 100_000)
SCALE_POINT = Bound(-1_000_000, 1_000_000)

# Bounds by table, then by column.
BOUNDS: dict[str, dict[str, Bound]] = {
    "experiment": {
        "samples": Bound(1, 10_000),
        "shuffle": Bound(0, 2_147_483_647),
        "max_concurrency": CALLS,
        "priority": Bound(-9, 9),
        "request_timeout_s": Bound(0.1, 3_600, "seconds"),
        "max_attempts": Bound(1, 20),
        "backoff_s": Bound(0.1, 3_600, "seconds"),
        "max_backoff_s": Bound(0.1, 3_600, "seconds"),
        "lease_s": Bound(1, DAY_S, "seconds"),
        "stop_failure_rate": SHARE,
        "stop_after_attempts": Bound(1, 1_000_000),
        "dev_items": Bound(1, 1_000_000),
        "dev_samples": Bound(1, 10_000),
        "max_usd": BUDGET,
        "confirm_above_usd": BUDGET,
    },
    "run": {"max_concurrency": CALLS},
    "sampler": {
        "temperature": Bound(0, 2),
        "top_p": SHARE,
        "max_tokens": Bound(1, MAX_TOKENS),
        "seed": Bound(-EXACT_INTEGER, EXACT_INTEGER),
    },
    "dimension": {"scale_min": SCALE_POINT, "scale_max": SCALE_POINT},
    "endpoint": {
        "max_concurrency": CALLS,
        "requests_per_minute": Bound(1, 10_000_000),
        "tokens_per_minute": Bound(1, 1_000_000_000),
        "requests_per_day": Bound(1, 1_000_000_000),
        "batch_max_requests": Bound(1, 50_000),
        "batch_max_open": Bound(1, 1_000),
    },
    "languagemodel": {
        "input_price": PRICE,
        "output_price": PRICE,
        "cache_read_price": PRICE,
        "cache_write_price": PRICE,
        "max_output_tokens": Bound(1, MAX_TOKENS),
        "batch_discount": SHARE,
    },
}
# Bounds of the keys of an experiment's `adaptive` mapping. Half-widths are shares, or scale points for rated items.
ADAPTIVE: dict[str, Bound] = {
    "round": Bound(1, 10_000),
    "max": Bound(1, 1_000_000),
    "targetci": WIDTH,
    "targetciht": WIDTH,
    "minci": WIDTH,
    "abortht": SHARE,
    "backoffht": SHARE,
    "confidence": Bound(0.5, 0.999),
}
