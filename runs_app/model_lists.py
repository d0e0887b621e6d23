"""Lists of models: those that an endpoint itself serves, with what they change on the site, and list prices.

OpenRouter's form has prices in US dollars per token, the context length and the modalities. OpenAI's form has only ids.
A price that the list does not state stays unknown, and never replaces a known one.

List prices are read from a file of litellm's package; nothing is downloaded.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from importlib import metadata
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from evalsite.lib.history import Actor, save_with_history
from runs_app.bounds import BOUNDS, PRICE
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.llm.failures import replace_unstorable
from runs_app.llm.keys import read_key
from runs_app.llm.providers import PROVIDERS, SELF_HOSTED
from runs_app.models import Endpoint, LanguageModel
from runs_app.pricing import tokens
from runs_app.pricing.costs import MILLION

TIMEOUT_S = 20.0
MAX_MODELS = 5_000
STATED_PRICES = {
    "input_price": "prompt",
    "output_price": "completion",
    "cache_read_price": "input_cache_read",
    "cache_write_price": "input_cache_write",
}


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model as an endpoint lists it. Prices are US dollars per million tokens; None is not stated."""

    model: str
    prices: dict[str, Decimal | None]
    context_length: int | None = None
    max_output_tokens: int | None = None
    sees_images: bool | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ModelListChange:
    """A listed model beside the model of the site with its id, or None if the site has none."""

    listed: ListedModel
    model: LanguageModel | None
    name: str
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        return self.model is None

    @property
    def summary(self) -> str:
        """Return the changes for people, such as "input $1 -> $3"."""
        if self.model is None:
            return f"new, as {self.name}"
        current = {kind: getattr(self.model, kind) for kind in KINDS}
        stated = {kind: self.fields.get(kind, current[kind]) for kind in KINDS}
        prices = Repricing(self.model, current, stated).summary.partition(": ")[2]
        others = [f"{name.replace('_', ' ')} {value}" for name, value in self.fields.items() if name in OTHER_FIELDS]
        if not any(kind in self.fields for kind in KINDS):
            return ", ".join(others) or "no change"
        return ", ".join([prices, *others])


OTHER_FIELDS = ("max_output_tokens", "sees_images")


def fetch_models(endpoint: Endpoint) -> list[ListedModel]:
    """Fetch the list of an endpoint. Raise CallFailure if it cannot be fetched or is no list of models."""
    return parse_models(asyncio.run(_fetch(endpoint)))


async def _fetch(endpoint: Endpoint) -> dict[str, Any]:
    from runs_app.batches.http_client import ApiClient  # Imports aiohttp, which no page needs.
    from runs_app.llm.http_transport import close_session

    provider = PROVIDERS[endpoint.provider]
    base = (endpoint.base_url or provider.default_url or "").rstrip("/")
    if not base:
        raise CallFailure(ErrorClass.NOT_ALLOWED, "the endpoint has no base URL, so its list has no address")
    if not provider.models_path:
        raise CallFailure(ErrorClass.NOT_FOUND, f"{provider.label} has no list of models here; enter a model ID")
    version = provider.models_path.removesuffix("/models")  # Some endpoints name it in their base URL.
    key = read_key(endpoint.key_env)
    client = ApiClient(base.removesuffix(version), key, provider.models_headers(key), endpoint.allowed_host)
    try:
        return await asyncio.wait_for(client.get(provider.models_path), TIMEOUT_S)
    except TimeoutError:
        raise CallFailure(ErrorClass.TIMEOUT, f"no list within {TIMEOUT_S:g} s") from None
    finally:
        await close_session()


def parse_models(payload: Mapping[str, Any]) -> list[ListedModel]:
    """Return the models of a list, by id. Raise CallFailure if it has none."""
    rows = payload.get("data")
    entries = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    models = {model.model: model for entry in entries[:MAX_MODELS] if (model := _parse_model(entry))}
    if not models:
        raise CallFailure(ErrorClass.MALFORMED_REPLY, "the reply is no list of models: it has no ids in `data`")
    return [models[model] for model in sorted(models)]


def _parse_model(entry: Mapping[str, Any]) -> ListedModel | None:
    model = entry.get("id")
    if not isinstance(model, str) or not 0 < len(model) <= 200 or model != replace_unstorable(model):
        return None
    pricing, details, top = (_get_mapping(entry, name) for name in ("pricing", "architecture", "top_provider"))
    prices = {kind: _parse_price(pricing.get(name)) for kind, name in STATED_PRICES.items()}
    modalities = details.get("input_modalities")
    note = ""
    if _parse_price(pricing.get("request")):  # Our prices have no part per call, so a reservation would be too small.
        prices, note = dict.fromkeys(prices), "It also charges for each request, so its price stays unknown."
    return ListedModel(
        model,
        prices,
        context_length=_parse_count(entry.get("context_length")),
        max_output_tokens=_parse_count(top.get("max_completion_tokens")),
        sees_images="image" in modalities if isinstance(modalities, list) else None,
        note=note,
    )


def _get_mapping(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = entry.get(name)
    return value if isinstance(value, dict) else {}


def _parse_price(dollars: Any) -> Decimal | None:
    """Return a price per million tokens from a price per token, or None if it is not stated or impossible."""
    if isinstance(dollars, bool) or not isinstance(dollars, str | int | float) or len(str(dollars)) > 40:
        return None
    try:
        price = Decimal(str(dollars)) * MILLION
    except InvalidOperation:
        return None
    return price.quantize(SIX_PLACES) if price.is_finite() and PRICE.contains(price) else None


def _parse_count(value: Any) -> int | None:
    bound = BOUNDS["languagemodel"]["max_output_tokens"]
    return value if isinstance(value, int) and not isinstance(value, bool) and bound.contains(value) else None


def find_changes(endpoint: Endpoint, listed: Iterable[ListedModel]) -> list[ModelListChange]:
    """Return what the list would change on the site: models in use first, then new ones, each by id."""
    own = {model.model: model for model in endpoint.models.select_related("endpoint").order_by("-name")}
    taken = set(LanguageModel.objects.values_list("name", flat=True))
    changes = [_find_change(endpoint, entry, own.get(entry.model), taken) for entry in listed]
    return sorted(changes, key=lambda change: change.is_new)


def _find_change(
    endpoint: Endpoint, listed: ListedModel, model: LanguageModel | None, taken: set[str]
) -> ModelListChange:
    fields: dict[str, Any] = {}
    if not endpoint.is_free:
        fields |= {kind: price for kind, price in listed.prices.items() if price is not None}
    if listed.sees_images is not None:
        fields["sees_images"] = listed.sees_images
    if listed.max_output_tokens is not None and (model is None or model.max_output_tokens is None):
        fields["max_output_tokens"] = listed.max_output_tokens
    if model is None:
        slug = re.sub(r"[^a-z0-9_]+", "-", listed.model.lower()).strip("-_") or "model"
        names = [
            slug[:80],
            f"{slug[:40]}-{endpoint.name}"[:80].strip("-"),
            *(f"{slug[:70]}-{n}" for n in range(2, 1000)),
        ]
        name = next(name for name in names if name not in taken)
        taken.add(name)
        return ModelListChange(listed, None, name, fields)
    return ModelListChange(
        listed, model, model.name, {name: value for name, value in fields.items() if getattr(model, name) != value}
    )


@transaction.atomic
def apply_changes(
    endpoint: Endpoint, changes: Iterable[ModelListChange], *, by: Actor, reason: str = ""
) -> tuple[int, int]:
    """Add new models and update the others, with the list as their price source, with history.

    Return the numbers of models added and updated. Raise ValidationError, and change nothing, if a model cannot take
    these values.
    """
    added = updated = 0
    for change in changes:
        values = dict(change.fields)
        if any(kind in values for kind in KINDS):
            values |= {"price_source": endpoint.price_source, "price_date": timezone.now().date()}
        if change.model is None:
            model = LanguageModel(name=change.name, endpoint=endpoint, model=change.listed.model, **values)
        elif values:
            model = change.model
            for name, value in values.items():
                setattr(model, name, value)
        else:
            continue
        try:
            model.full_clean()
        except ValidationError as error:
            raise ValidationError(f"{change.listed.model}: {' '.join(error.messages)}") from None
        save_with_history(model, by=by, reason=reason, fields=None if change.model is None else list(values))
        added, updated = added + (change.model is None), updated + (change.model is not None)
    return added, updated


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
