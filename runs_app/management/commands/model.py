"""The command `manage.py model VERB ...`: the models that endpoints serve, and their prices."""

from __future__ import annotations

from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from django.utils import timezone

from evalsite.lib.ops.commands import VerbCommand, add_reason, add_switches, refuse_input, resolve_actor, update_fields
from runs_app import model_lists
from runs_app.engine.model_state import forget_refusal
from runs_app.models import Endpoint, LanguageModel
from runs_app.models.preflights import prefetch_last_preflights

PRICES = ("input_price", "output_price", "cache_read_price", "cache_write_price")
SWITCHES = (
    ("--sees-images", "sees_images", True, "it accepts images"),
    ("--text-only", "sees_images", False, "it accepts no images"),
    ("--structured-output", "structured_output", True, "it accepts a strict JSON schema"),
    ("--no-structured-output", "structured_output", False, "it accepts no JSON schema"),
    ("--cache-marks", "cache_marks", True, "mark the shared part of requests for the provider's cache"),
    ("--no-cache-marks", "cache_marks", False, "send no cache marks"),
    ("--active", "is_active", True, "offer it for new designs"),
    ("--inactive", "is_active", False, "do not offer it for new designs"),
)


class Command(VerbCommand):
    help = "Create, change, list and price language models. Prices are US dollars per million tokens."

    def add_verbs(self, verbs: Any) -> None:
        parser = verbs.add_parser("set", help="create a model, or change the given fields")
        parser.add_argument("name")
        parser.add_argument("--endpoint", metavar="NAME")
        parser.add_argument("--model", metavar="ID", help="the provider's ID of the model")
        for price in PRICES:
            parser.add_argument(f"--{price.replace('_', '-')}", metavar="USD")
        parser.add_argument("--batch-discount", metavar="SHARE", help="discount of the batch API, 0 to 1")
        parser.add_argument("--price-source", metavar="TEXT")
        parser.add_argument("--price-date", metavar="YYYY-MM-DD", help="default: today, if a price is given")
        parser.add_argument("--max-output-tokens", type=int, metavar="N")
        parser.add_argument("--groups", metavar="TAGS", help="for filters of the leaderboard, such as 'size:large'")
        add_switches(parser, SWITCHES)
        add_reason(parser)
        parser = verbs.add_parser("price", help="set prices from the list in litellm's package")
        parser.add_argument("names", nargs="*", metavar="NAME")
        parser.add_argument("--all", action="store_true", help="price all active models")
        parser.add_argument("--dry-run", action="store_true", help="only show the changes")
        add_reason(parser)
        parser = verbs.add_parser("list", help="list all models")
        parser.add_argument("--endpoint", metavar="NAME")
        parser.add_argument("--json", action="store_true")

    def do_set(self, name: str, endpoint: str | None, user: str, reason: str, **options: Any) -> None:
        model = LanguageModel.objects.select_related("endpoint").filter(name=name).first() or LanguageModel(name=name)
        if endpoint is not None or model.endpoint_id is None:
            model.endpoint = _get_endpoint(endpoint)
        values: dict[str, Any] = {field: _parse_price(field, options[field]) for field in PRICES}
        has_price = any(price is not None for price in values.values())
        values["price_date"] = _parse_date(options["price_date"], has_price)
        values["batch_discount"] = _parse_price("batch_discount", options["batch_discount"])
        names = (
            "model",
            "price_source",
            "max_output_tokens",
            "groups",
            "sees_images",
            "structured_output",
            "cache_marks",
            "is_active",
        )
        update_fields(model, values | {field: options[field] for field in names}, by=resolve_actor(user), reason=reason)
        if options["structured_output"]:
            forget_refusal(model, by=resolve_actor(user), reason=reason)
        self.write(_format_line(model))

    def do_price(self, names: list[str], all: bool, dry_run: bool, user: str, reason: str, **options: Any) -> None:
        if bool(names) == all:
            refuse_input("name: enter the names of models, or use --all for all active models")
        repricings = model_lists.find_repricings(_get_models(names))
        for repricing in repricings:
            self.write(repricing.summary)
        unpriced = [repricing for repricing in repricings if repricing.problem]
        if names and unpriced:
            refuse_input(f"name: {unpriced[0].summary}; nothing was changed. Use `model set` to enter prices")
        n = 0 if dry_run else model_lists.apply_repricings(repricings, by=resolve_actor(user), reason=reason)
        self.write(f"{n} models priced from {model_lists.get_source_name()}, {len(unpriced)} unchanged")

    def do_list(self, endpoint: str | None, json: bool, **options: Any) -> None:
        models = prefetch_last_preflights(LanguageModel.objects.select_related("endpoint"))
        if endpoint is not None:
            models = models.filter(endpoint=_get_endpoint(endpoint))
        if json:
            self.write_json(
                [
                    {
                        "name": model.name,
                        "endpoint": model.endpoint.name,
                        "model": model.model,
                        **{price: getattr(model, price) for price in PRICES},
                        "price_source": model.price_source,
                        "groups": model.groups,
                        "price_date": model.price_date,
                        "max_output_tokens": model.max_output_tokens,
                        "sees_images": model.sees_images,
                        "structured_output": model.structured_output,
                        "schema_refused_at": model.schema_refused_at,
                        "cache_marks": model.cache_marks,
                        "active": model.is_active,
                        "check": model.last_preflights[0].status if model.last_preflights else "",
                        "check_is_outdated": any(preflight.outdated_since for preflight in model.last_preflights),
                    }
                    for model in models
                ]
            )
            return
        for model in models:
            self.write(_format_line(model))


def _get_endpoint(name: str | None) -> Endpoint:
    if name is None:
        refuse_input("endpoint: a new model needs --endpoint NAME")
    endpoint: Endpoint | None = Endpoint.objects.filter(name=name).first()
    if endpoint is None:
        refuse_input(f"endpoint: there is no endpoint {name}; create it with `endpoint set`")
    return endpoint


def _get_models(names: list[str]) -> list[LanguageModel]:
    """Return the named models in this order, or all active models without names."""
    models = LanguageModel.objects.select_related("endpoint")
    if not names:
        return list(models.filter(is_active=True))
    by_name = {model.name: model for model in models.filter(name__in=names)}
    for name in names:
        if name not in by_name:
            refuse_input(f"name: there is no model {name}; see `model list`")
    return [by_name[name] for name in dict.fromkeys(names)]


def _parse_price(field: str, text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        refuse_input(f"{field}: {text!r} is not a number")


def _parse_date(text: str | None, has_price: bool) -> date | None:
    if text is None:
        return timezone.now().date() if has_price else None
    try:
        return date.fromisoformat(text)
    except ValueError:
        refuse_input(f"price_date: {text!r} is not a date; use YYYY-MM-DD")


def _format_line(model: LanguageModel) -> str:
    prices = model.prices
    if prices.is_free:
        cost = "free"
    elif prices.input is not None and prices.output is not None:
        cost = f"${prices.input.normalize():f} in, ${prices.output.normalize():f} out per million tokens"
    else:
        cost = "price unknown"
    source = f" ({', '.join(str(part) for part in (prices.source, prices.as_of) if part)})" if prices.source else ""
    preflight = model.last_preflights[0] if getattr(model, "last_preflights", None) else None
    warning = f"; {preflight.status}. {preflight.warning}" if preflight and preflight.warning else ""
    return f"{model.name:<24} {model.model:<32} at {model.endpoint.name:<16} {cost}{source}{warning}"
