"""The command `manage.py model VERB ...`: the models that endpoints serve, and their prices."""

from __future__ import annotations

from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from django.utils import timezone

from evalsite.lib.ops.commands import VerbCommand, add_reason, add_switches, refuse_input, resolve_actor
from runs_app import price_list
from runs_app.management.field_updates import update_given_fields
from runs_app.models import Endpoint, LanguageModel
from runs_app.models.preflights import prefetch_last_preflights

PRICES = ("input_price", "output_price", "cache_read_price", "cache_write_price")
SWITCHES = (
    ("--sees-images", "sees_images", True, "takes images"),
    ("--text-only", "sees_images", False, "takes no images"),
    ("--structured-output", "structured_output", True, "accepts a strict JSON schema"),
    ("--no-structured-output", "structured_output", False, "does not"),
    ("--cache-marks", "cache_marks", True, "mark what items share for the provider's cache"),
    ("--no-cache-marks", "cache_marks", False, "do not"),
    ("--active", "is_active", True, "in use"),
    ("--inactive", "is_active", False, "out of use"),
)


class Command(VerbCommand):
    help = "Set and list language models; prices are US dollars per million tokens, and unknown until they are given."

    def add_verbs(self, verbs: Any) -> None:
        parser = verbs.add_parser("set", help="make a model, or change what is given of one")
        parser.add_argument("name")
        parser.add_argument("--endpoint", metavar="NAME")
        parser.add_argument("--model", metavar="ID", help="the id that the provider knows it by")
        for price in PRICES:
            parser.add_argument(f"--{price.replace('_', '-')}", metavar="USD")
        parser.add_argument("--batch-discount", metavar="SHARE", help="of these prices that a call in a batch saves")
        parser.add_argument("--price-source", metavar="TEXT")
        parser.add_argument("--price-date", metavar="YYYY-MM-DD", help="default: today, when a price is given")
        parser.add_argument("--max-output-tokens", type=int, metavar="N")
        parser.add_argument("--groups", metavar="TAGS", help="for filters of the leaderboard, such as 'size:large'")
        add_switches(parser, SWITCHES)
        add_reason(parser)
        parser = verbs.add_parser("price", help="take over list prices from litellm's package: old -> new")
        parser.add_argument("names", nargs="*", metavar="NAME")
        parser.add_argument("--all", action="store_true", help="of all models that are in use")
        parser.add_argument("--dry-run", action="store_true", help="say what would change")
        add_reason(parser)
        parser = verbs.add_parser("list", help="all models")
        parser.add_argument("--endpoint", metavar="NAME")
        parser.add_argument("--json", action="store_true")

    def do_set(self, name: str, endpoint: str | None, user: str, reason: str, **options: Any) -> None:
        model = LanguageModel.objects.select_related("endpoint").filter(name=name).first() or LanguageModel(name=name)
        if endpoint is not None or model.endpoint_id is None:
            model.endpoint = _endpoint(endpoint)
        given: dict[str, Any] = {field: _price(field, options[field]) for field in PRICES}
        given |= {"price_date": _date(options["price_date"], any(value is not None for value in given.values()))}
        given["batch_discount"] = _price("batch_discount", options["batch_discount"])
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
        update_given_fields(
            model, given | {field: options[field] for field in names}, by=resolve_actor(user), reason=reason
        )
        self.say(_line(model))

    def do_price(self, names: list[str], all: bool, dry_run: bool, user: str, reason: str, **options: Any) -> None:
        if bool(names) == all:
            refuse_input("name: say which models, or --all of those in use")
        found = price_list.find_repricings(_models(names))
        for one in found:
            self.say(one.summary)
        unlisted = [one for one in found if one.why_not]
        if names and unlisted:
            refuse_input(f"name: {unlisted[0].summary}; nothing was changed. `model set` takes prices by hand")
        n = 0 if dry_run else price_list.apply_repricings(found, by=resolve_actor(user), reason=reason)
        self.say(f"{n} models priced by {price_list.source_name()}, {len(unlisted)} left as they were")

    def do_list(self, endpoint: str | None, json: bool, **options: Any) -> None:
        models = prefetch_last_preflights(LanguageModel.objects.select_related("endpoint"))
        if endpoint is not None:
            models = models.filter(endpoint=_endpoint(endpoint))
        if json:
            self.say_json([_facts(model) for model in models])
            return
        for model in models:
            self.say(_line(model))


def _endpoint(name: str | None) -> Endpoint:
    if name is None:
        refuse_input("endpoint: a new model needs --endpoint NAME")
    found: Endpoint | None = Endpoint.objects.filter(name=name).first()
    if found is None:
        refuse_input(f"endpoint: there is no endpoint {name}; make it with `endpoint set`")
    return found


def _models(names: list[str]) -> list[LanguageModel]:
    """Return the named models in that order, or all active models if no name is given."""
    models = LanguageModel.objects.select_related("endpoint")
    if not names:
        return list(models.filter(is_active=True))
    found = {model.name: model for model in models.filter(name__in=names)}
    for name in names:
        if name not in found:
            refuse_input(f"name: there is no model {name}; `model list` names them")
    return [found[name] for name in dict.fromkeys(names)]


def _price(field: str, text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        refuse_input(f"{field}: {text!r} is not a number")


def _date(text: str | None, priced: bool) -> date | None:
    if text is None:
        return timezone.now().date() if priced else None
    try:
        return date.fromisoformat(text)
    except ValueError:
        refuse_input(f"price_date: {text!r} is not a date; write YYYY-MM-DD")


def _line(model: LanguageModel) -> str:
    prices = model.prices
    if prices.free:
        cost = "free"
    elif prices.input is not None and prices.output is not None:
        cost = f"${prices.input.normalize():f} in, ${prices.output.normalize():f} out per million tokens"
    else:
        cost = "price unknown"
    source = f" ({', '.join(str(part) for part in (prices.source, prices.as_of) if part)})" if prices.source else ""
    last = model.last_preflights[0] if getattr(model, "last_preflights", None) else None
    checked = f"; {last.status}. {last.warning}" if last and last.warning else ""
    return f"{model.name:<24} {model.model:<32} at {model.endpoint.name:<16} {cost}{source}{checked}"


def _facts(model: LanguageModel) -> dict[str, Any]:
    return {
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
        "cache_marks": model.cache_marks,
        "active": model.is_active,
        "check": model.last_preflights[0].status if model.last_preflights else "",
        "check_is_outdated": any(last.outdated_since for last in model.last_preflights),
    }
