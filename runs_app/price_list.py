"""List prices from litellm's package, for models of the site. They are read from its file; nothing is downloaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib import metadata
from typing import Any

from django.db import transaction
from django.utils import timezone

from evalsite.lib.history import Actor, save_with_history
from runs_app.llm.providers import SELF_HOSTED
from runs_app.models import LanguageModel
from runs_app.pricing import tokens
from runs_app.pricing.costs import MILLION

LIST = "model_prices_and_context_window_backup.json"
KINDS = {
    "input_price": "input_cost_per_token",
    "output_price": "output_cost_per_token",
    "cache_read_price": "cache_read_input_token_cost",
    "cache_write_price": "cache_creation_input_token_cost",
}
SIX_PLACES = Decimal("0.000001")
_LONG_CONTEXT_PRICE = re.compile(r"input_cost_per_token_above_(\w+)_tokens")

Listed = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Repricing:
    """A model's current and listed prices, in US dollars per million tokens.

    `problem` says why the listed prices cannot be used, or is "".
    """

    model: LanguageModel
    before: dict[str, Decimal | None]
    after: dict[str, Decimal | None]
    problem: str = ""
    long_context_above: str = ""

    @property
    def summary(self) -> str:
        """Return the old and new value of each price that changes, for people."""
        if self.problem:
            return f"{self.model}: {self.problem}"
        changes = [
            f"{kind.removesuffix('_price').replace('_', ' ')} "
            f"{_format_price(self.before[kind])} -> {_format_price(self.after[kind])}"
            for kind in KINDS
            if self.before[kind] != self.after[kind]
        ]
        long_context = (
            f"; dearer above {self.long_context_above} tokens, which Evalsite does not apply"
            if self.long_context_above
            else ""
        )
        return f"{self.model}: {', '.join(changes) or 'matches the list'}{long_context}"


def get_source_name() -> str:
    return f"litellm {metadata.version('litellm')}"


def read_list() -> Listed:
    """Return the list by litellm's model names; empty if its file is missing."""
    folder = tokens.find_litellm_folder()
    try:
        prices: Listed = json.loads((folder / LIST).read_text(encoding="utf-8")) if folder else {}
    except OSError:
        return {}
    return prices


def find_repricings(models: Iterable[LanguageModel]) -> list[Repricing]:
    """Return the listed prices for each of these models. Fetch the endpoint with each model."""
    listed = read_list()
    return [_find_repricing(model, listed) for model in models]


def _find_repricing(model: LanguageModel, listed: Listed) -> Repricing:
    before = {kind: getattr(model, kind) for kind in KINDS}
    if model.endpoint.is_free:
        return Repricing(model, before, before, "its endpoint is free")
    entry = _find_entry(model, listed)
    after = {kind: _convert_to_per_million(entry.get(name)) for kind, name in KINDS.items()}
    if after["input_price"] is None or after["output_price"] is None:
        unlisted = f"{get_source_name()} lists no price of {model.model} at {model.endpoint.provider}"
        return Repricing(model, before, before, unlisted)
    long_context = next((found[1] for name in entry if (found := _LONG_CONTEXT_PRICE.fullmatch(name))), "")
    return Repricing(model, before, after, long_context_above=long_context)


def _find_entry(model: LanguageModel, listed: Listed) -> Mapping[str, Any]:
    """Return a model's entry, looked up as litellm does: by provider and id, or by id alone if the provider matches."""
    provider = model.endpoint.provider
    if provider in SELF_HOSTED:
        return {}
    for name in (f"{provider}/{model.model}", model.model):
        entry = listed.get(name, {})
        if entry.get("litellm_provider") == provider:
            return entry
    return {}


def _convert_to_per_million(dollars: Any) -> Decimal | None:
    if isinstance(dollars, bool) or not isinstance(dollars, int | float) or dollars < 0:
        return None
    return (Decimal(str(dollars)) * MILLION).quantize(SIX_PLACES)


@transaction.atomic
def apply_repricings(repricings: Iterable[Repricing], *, by: Actor, reason: str = "") -> int:
    """Store the listed prices with their source and today's date, with history. Return the number of models changed."""
    usable = [repricing for repricing in repricings if not repricing.problem]
    for repricing in usable:
        prices = repricing.after | {"price_source": get_source_name(), "price_date": timezone.now().date()}
        for name, value in prices.items():
            setattr(repricing.model, name, value)
        save_with_history(repricing.model, by=by, reason=reason, fields=list(prices))
    return len(usable)


def _format_price(price: Decimal | None) -> str:
    return "unknown" if price is None else f"${price.normalize():f}"
