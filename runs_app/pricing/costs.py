"""The cost of a call, in exact decimal US dollars, and the estimated costs of a design, as data.

An unknown price gives an unknown cost (`None`), never zero. Code that adds costs must decide how to treat unknown
costs. Free means an explicit price of zero. `runs_app/planning/cost_estimate.py` computes the estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date
from decimal import ROUND_UP, Decimal
from typing import Literal

MILLION = Decimal(1_000_000)
SMALLEST_RESERVATION = Decimal("0.00000001")
TYPICAL_OUTPUT_TOKENS = (
    500  # Tokens. Until the first answers correct it, a rate limit is over- or underused by at most this.
)

Basis = Literal["own", "group", "pooled", "ceiling"]


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in US dollars per million tokens. `None` is unknown; zero is free."""

    input: Decimal | None
    output: Decimal | None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    source: str = ""
    as_of: date | None = None

    @property
    def is_known(self) -> bool:
        return self.input is not None and self.output is not None

    def in_batch(self, discount: Decimal) -> Prices:
        """Return the prices in a batch, reduced by this share."""
        names = ("input", "output", "cache_read", "cache_write")
        prices = {name: price for name in names if (price := getattr(self, name)) is not None}
        return replace(self, **{name: price * (1 - discount) for name, price in prices.items()})

    @property
    def is_free(self) -> bool:
        return self.is_known and not any((self.input, self.output, self.cache_read, self.cache_write))

    def compute_ceiling(self, input_tokens: int, max_output_tokens: int | None) -> Decimal | None:
        """Return the largest cost of one call in US dollars, or None without a ceiling. It is reserved before the call.

        `max_output_tokens` is the sampler's limit, else the model's. Without it or a price, there is no ceiling. Input
        is charged at its highest price, which is the cache's write price if there is one.
        """
        if self.input is None or self.output is None:
            return None
        if self.is_free:
            return Decimal(0)
        if max_output_tokens is None:
            return None
        input_price = max(self.input, self.cache_write or self.input)
        return (input_tokens * input_price + max_output_tokens * self.output) / MILLION

    def compute_expected_cost(
        self,
        ceiling: Decimal | None,
        own: ObservedTokens | None = None,
        group: ObservedTokens | None = None,
        pooled: ObservedTokens | None = None,
    ) -> Expectation | None:
        """Return the expected cost of one call, or None.

        It rests on the first of these that has observations: the condition's `own` calls, those of its `group`, all
        calls (`pooled`). Otherwise it is the ceiling. Input is at list price, without savings by a provider's cache.
        Return None if a price is unknown, or if there are neither observations nor a ceiling.
        """
        if self.input is None or self.output is None:
            return None
        candidates: tuple[tuple[Basis, ObservedTokens | None], ...] = (
            ("own", own),
            ("group", group),
            ("pooled", pooled),
        )
        for basis, observed in candidates:
            if observed is not None and observed.calls:
                input_usd = _to_decimal(observed.input_mean) * self.input
                output_usd = _to_decimal(observed.output_mean) * self.output
                return Expectation((input_usd + output_usd) / MILLION, basis, observed.calls)
        return None if ceiling is None else Expectation(ceiling, "ceiling", 0)


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call. Input includes cache reads and writes; output includes reasoning."""

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def compute_cost(self, prices: Prices) -> Decimal | None:
        """Return the cost of these tokens in US dollars, or None if a needed price is unknown.

        A cache read without its own price costs as much as input, and providers never charge more. A cache write has no
        such bound, because some providers charge more than for input. So its cost is then unknown.
        """
        if prices.input is None or prices.output is None:
            return None
        if self.cache_write_tokens and prices.cache_write is None:
            return None
        read_price = prices.input if prices.cache_read is None else prices.cache_read
        fresh = max(0, self.input_tokens - self.cache_read_tokens - self.cache_write_tokens)
        return (
            fresh * prices.input
            + self.cache_read_tokens * read_price
            + self.cache_write_tokens * (prices.cache_write or Decimal(0))
            + self.output_tokens * prices.output
        ) / MILLION

    def compute_list_cost(self, prices: Prices) -> Decimal | None:
        """Return the cost of the same tokens without a cache, to compute savings."""
        return Usage(self.input_tokens, self.output_tokens, self.reasoning_tokens).compute_cost(prices)


@dataclass(frozen=True, slots=True)
class ObservedTokens:
    """The mean tokens per call, over `calls` recorded calls."""

    input_mean: float
    output_mean: float
    calls: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected US dollars per call, and the kind and number (`calls`) of observations behind it."""

    usd: Decimal
    basis: Basis
    calls: int


def estimate_tokens(text: str) -> int:
    """Return a rough upper bound of the tokens of a text: one token for each three bytes of UTF-8, rounded up.

    English has about four characters per token. Other scripts need more tokens per character, and also more bytes.
    """
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 3)


def round_reservation(ceiling: Decimal | None) -> Decimal:
    """Return the reservation as stored; 0 without a ceiling. With a budget, every call has a ceiling."""
    return Decimal(0) if ceiling is None else ceiling.quantize(SMALLEST_RESERVATION, rounding=ROUND_UP)


@dataclass(frozen=True, slots=True)
class CallBounds:
    """The bounds of each call of a run, for the reservations of its claims.

    `ceiling_usd` is the largest cost in US dollars. `request_tokens` are the tokens of the largest request.
    `output_limit` is the longest answer in tokens. None is unknown.
    """

    ceiling_usd: Decimal | None
    request_tokens: int
    output_limit: int | None

    @property
    def columns(self) -> dict[str, Decimal | int]:
        """Return the columns of the run: US dollars, and the tokens that a call consumes of the rate limit."""
        return {
            "reserve_usd": round_reservation(self.ceiling_usd),
            "reserve_tokens": self.request_tokens
            + min(self.output_limit or TYPICAL_OUTPUT_TOKENS, TYPICAL_OUTPUT_TOKENS),
            "request_tokens": self.request_tokens,
        }


def _to_decimal(mean: float) -> Decimal:
    return Decimal(repr(float(mean)))


@dataclass(frozen=True, slots=True)
class Price:
    """A model's prices in US dollars per million tokens (None: unknown), and their source.

    `counted` names the rules that count the model's tokens for the ceiling.
    """

    model: str
    input: Decimal | None
    output: Decimal | None
    source: str
    as_of: date | None
    free: bool
    counted: str = ""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The costs in US dollars of the trials still to do in one wave. None if any part is unknown.

    The ceiling assumes the largest request and the longest answer for every call, and one call per trial. `basis`
    counts the trials by the kind of observations behind their expected cost. `coverage` is the share of trials with
    observations. If points stop early, `to_do` is the maximum number of trials and `likely` the expected number.
    `foreseen` is the number of trials that the response cache will answer at no cost. `full_usd` is the expected cost
    of the whole design without reuse. `batched` trials are sent in batches, at the batch price, and `batches_save_usd`
    is the expected saving. `verdicts` is the number of verdicts of the design's judges; the costs include them.
    `policy_text` describes the part of the design that the budget policy `dev` runs.
    """

    trials: int
    to_do: int
    spent_usd: Decimal
    ceiling_usd: Decimal | None
    expected_usd: Decimal | None
    basis: dict[Basis, int]
    coverage: float
    prices: list[Price]
    unknown_prices: list[str]
    problems: list[str]
    warnings: list[str]
    likely: int | None = None
    verdicts: int = 0
    foreseen: int = 0
    full_usd: Decimal | None = None
    batched: int = 0
    batches_save_usd: Decimal | None = None
    policy_text: str = ""
