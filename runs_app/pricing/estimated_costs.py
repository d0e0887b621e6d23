"""The estimated costs of a design, as data. `runs_app/planning/cost_estimate.py` computes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from runs_app.pricing.costs import Basis


@dataclass(frozen=True, slots=True)
class Price:
    """The US dollars per million tokens of one model, and their source. None is unknown.

    `counted` names the rules by which the ceiling counts the model's tokens.
    """

    model: str
    input: Decimal | None
    output: Decimal | None
    source: str
    as_of: date | None
    free: bool
    counted: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Costs in US dollars of the trials still to do in one wave. None if any part is unknown.

    The ceiling assumes the largest request and the longest answer for every call, and one call per trial. `basis`
    counts the trials whose expected cost rests on each kind of observation. `coverage` is the share that rests on any.
    If points stop early, `to_do` is the most trials and `likely` the expected number. `foreseen` trials will be
    answered by the response cache at no cost. `full_usd` is the expected cost of the whole design from scratch.
    `batched` trials go out in batches and are priced at the batch price. `batches_save_usd` is the expected saving.
    `verdicts` is the number of verdicts of the design's judges; the costs include them. `policy_text` describes the
    part of the design that the budget policy `dev` asks.
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
