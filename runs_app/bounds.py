"""The allowed range of each number in a design, an endpoint and a model. Pure functions.

Forms, experiment files and the database all use these ranges. A number without a bound can stop more than its own
design. For example, a lease of 1e300 seconds makes PostgreSQL refuse the statement that claims trials.
That statement claims for every run of an endpoint.
"""

from __future__ import annotations

from evalsite.lib.bound import Bound
from runs_app.experiment_options import CALLS, OPTIONS, SHARE

MAX_TOKENS = 10_000_000  # Per answer.
EXACT_INTEGER = 2**53 - 1  # The largest integer that every JSON reader represents exactly.
PRICE = Bound(0, 100_000, "US dollars per million tokens")
WIDTH = Bound(0, 1_000_000)
SCALE_POINT = Bound(-1_000_000, 1_000_000)

# Bounds by table, then by column.
BOUNDS: dict[str, dict[str, Bound]] = {
    "experiment": {option.name: option.bound for option in OPTIONS if option.bound},
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
