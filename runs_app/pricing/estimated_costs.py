"""Estimated costs of a design, as data. `runs_app/planning/cost_estimate.py` computes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from runs_app.pricing.costs import Basis


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
