"""The JSON objects of the API, and their pages. Amounts of money are texts, so that no digit is lost.

A cursor names the last row of a page, so new rows neither repeat nor hide others.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from ninja import Field, Schema

from evalsite.api.problems import Problem
from runs_app.experiment_options import BudgetPolicy

MAX_LIMIT, DEFAULT_LIMIT = 1000, 100
LARGEST_KEY = 2**63 - 1


class PageQuery(Schema):
    """The part of a list that a request asks for."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Rows of a page")] = DEFAULT_LIMIT
    after: Annotated[str, Field(max_length=80, description="`next` of the page before. Empty: the first page")] = ""


def encode_cursor(*keys: int) -> str:
    return base64.urlsafe_b64encode(".".join(map(str, keys)).encode()).decode().rstrip("=")


def decode_cursor(text: str, n_keys: int = 1) -> tuple[int, ...]:
    """Return the keys in a cursor, or zeros for the first page. Raise Problem for any other text."""
    if not text:
        return (0,) * n_keys
    try:
        parts = (
            base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii").split(".")
        )
        keys = tuple(int(part) for part in parts if part.isdecimal())
    except (binascii.Error, ValueError):
        keys = ()
    if len(keys) != n_keys or max(keys) > LARGEST_KEY:
        raise Problem(422, "The request has wrong or missing fields.", [("after", "is no cursor of this list")])
    return keys


def read_page(rows: Any, page: PageQuery, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return a page of a QuerySet in the order of its keys, with the cursor of the next page or None."""
    (key,) = decode_cursor(page.after)
    found = list(rows.filter(pk__gt=key).order_by("pk")[: page.limit + 1])
    shown = found[: page.limit]
    return {
        "items": [write(row) for row in shown],
        "next": encode_cursor(shown[-1].pk) if len(found) > page.limit else None,
    }


class DatasetOut(Schema):
    name: str
    version: int
    title: str
    status: str
    items: int
    licence: str
    source: str
    content_hash: str
    created_at: datetime


class DatasetPage(Schema):
    items: list[DatasetOut]
    next: str | None


class ItemOut(Schema):
    id: int
    key: str
    position: int
    input: str
    image: str | None
    target: str
    choices: list[Any]
    category: str
    metadata: dict[str, Any]
    excluded: bool


class ItemPage(Schema):
    items: list[ItemOut]
    next: str | None


class PromptOut(Schema):
    name: str
    version: int
    status: str
    messages: list[dict[str, Any]]
    answer_format: str
    content_hash: str


class PromptPage(Schema):
    items: list[PromptOut]
    next: str | None


class ModelOut(Schema):
    name: str
    model: str
    endpoint: str
    provider: str
    is_active: bool
    sees_images: bool
    input_price: str | None = Field(description="US dollars per million tokens")
    output_price: str | None = Field(description="US dollars per million tokens")


class ModelPage(Schema):
    items: list[ModelOut]
    next: str | None


class ExperimentOut(Schema):
    name: str
    title: str
    status: str
    state: str = Field(description="The status of a draft or an archived experiment, else the state of its runs")
    owner: str
    dataset: str
    created_at: datetime
    trials: int
    done: int
    failed: int
    remaining: int
    spent_usd: str | None
    max_usd: str | None


class ExperimentPage(Schema):
    items: list[ExperimentOut]
    next: str | None


class RunOut(Schema):
    id: int
    experiment: str
    condition: str
    stage: str
    model: str
    wave: int
    wave_label: str
    status: str
    state: str
    stop_reason: str
    trials: int
    pending: int
    running: int
    cancelled: int
    ended: int
    done: int | None
    failed: int | None
    attempts: int | None
    spent_usd: str | None


class RunPage(Schema):
    items: list[RunOut]
    next: str | None


class RowPage(Schema):
    """A page of a table, with the columns of its export."""

    items: list[dict[str, Any]]
    next: str | None


class CreateIn(Schema):
    file: Annotated[str, Field(max_length=2_000_000, description="The experiment file as YAML or JSON")] = ""
    design: dict[str, Any] | None = Field(None, description="The content of the experiment file, instead of `file`")


class ScopeIn(Schema):
    """The part of a design to launch."""

    wave: Annotated[str, Field(max_length=80, description="The label of a wave; empty: the first one")] = ""
    pilot: Annotated[int | None, Field(ge=1, le=1_000_000, description="Only this many trials")] = None
    policy: Annotated[BudgetPolicy | None, Field(description="Replaces the budget policy")] = None


class LaunchIn(ScopeIn):
    max_usd: Annotated[
        Decimal | None,
        Field(ge=0, le=1_000_000, max_digits=14, description="Refuse the launch if it may cost more than this"),
    ] = None
    accept_cost: bool = Field(False, description="Accept a maximum cost above `confirm_above_usd` of the design")


class ReasonIn(Schema):
    reason: Annotated[str, Field(max_length=500, description="Stored in the history")] = ""


class EstimateOut(Schema):
    trials: int
    to_do: int
    ceiling_usd: str | None = Field(description="The largest possible cost; null if unknown")
    expected_usd: str | None
    spent_usd: str | None = Field(description="Spent so far; null if unknown")
    max_usd: str | None
    coverage: float = Field(description="Share of the trials with an estimate from earlier answers")
    needs_confirmation: bool
    is_over_budget: bool
    problems: list[str]
    warnings: list[str]


class LaunchOut(Schema):
    experiment: str
    is_new: bool
    summary: str
    runs: list[int]
    trials_added: int
    trials_total: int
    notes: list[str]
    estimate: EstimateOut


class ChangedOut(Schema):
    changed: int = Field(description="Number of runs whose status changed")
    runs: list[int]


class ScoreOut(Schema):
    """The mean of a measure in one condition, with its 95 % interval. Without an interval, `reason` says why."""

    measure: str
    is_share: bool
    condition: str
    category: str | None
    mean: float | None
    low: float | None
    high: float | None
    se: float | None
    sd: float | None
    method: str
    reason: str
    n: int = Field(description="Answers with a score")
    of: int = Field(description="Planned answers: those with a score, and those without")
    missing: int = Field(description="Planned answers without a score")
    reasons: dict[str, int] = Field(description="Missing answers by reason, such as refused or unreadable")
    items: int
    effective_n: float | None


class ResultsOut(Schema):
    experiment: str
    wave: int | None
    as_of: datetime | None = Field(description="When a worker read the rows; null: during this request")
    is_fresh: bool
    scores: list[ScoreOut]


class FigureOut(Schema):
    name: str
    title: str
    formats: list[str]


class FiguresOut(Schema):
    figures: list[FigureOut]
    is_complete: bool = Field(description="False while a worker computes values that further figures need")
