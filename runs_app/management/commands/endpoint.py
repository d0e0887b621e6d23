"""The command `manage.py endpoint VERB ...`: the endpoints that serve models."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management import CommandError

from evalsite.lib.ops.commands import (
    WORK_FAILED,
    VerbCommand,
    add_list_option,
    add_reason,
    add_switches,
    add_user,
    refuse_input,
    resolve_actor,
    update_fields,
)
from runs_app import model_lists
from runs_app.forms.fields import split_names
from runs_app.llm.calls import CallFailure
from runs_app.management.started_work import make_preflights
from runs_app.models import Endpoint

FIELDS = (
    "provider", "base_url", "key_env", "max_concurrency", "day_zone", "adaptive", "is_free", "is_active",
    "batch_api", "batch_max_requests", "batch_max_open", "provider_routes", "local_server",
)  # fmt: skip
RATES = {"requests_per_minute": "rpm", "tokens_per_minute": "tpm", "requests_per_day": "rpd"}
SWITCHES = (
    ("--adaptive", "adaptive", True, "adjust calls in flight to the load"),
    ("--not-adaptive", "adaptive", False, "always allow --max-concurrency calls in flight"),
    ("--free", "is_free", True, "its calls cost nothing"),
    ("--not-free", "is_free", False, "its calls cost the prices of their models"),
    ("--active", "is_active", True, "start calls"),
    ("--inactive", "is_active", False, "start no calls"),
)


class Command(VerbCommand):
    help = "Create, change, list and check the endpoints that serve models."

    def add_verbs(self, verbs: Any) -> None:
        _add_set_options(verbs.add_parser("set", help="create an endpoint, or change the given fields"))
        verbs.add_parser("list", help="list all endpoints").add_argument("--json", action="store_true")
        parser = verbs.add_parser("check", help="make one small call to each model of an endpoint")
        parser.add_argument("name")
        add_user(parser)
        parser = verbs.add_parser("models", help="show the endpoint's own list of models, and what would change")
        parser.add_argument("name")
        add_list_option(parser, "--add", metavar="ID", help="add or update these models")
        parser.add_argument("--update", action="store_true", help="update all models that the site has")
        parser.add_argument("--json", action="store_true")
        add_reason(parser)

    def do_set(self, name: str, user: str, reason: str, **options: Any) -> None:
        endpoint = Endpoint.objects.filter(name=name).first() or Endpoint(name=name)
        for field, option in RATES.items():
            if options[option] == 0:
                setattr(endpoint, field, None)
        rates = {field: options[option] or None for field, option in RATES.items()}
        values = rates | {field: options[field] for field in FIELDS}
        update_fields(endpoint, values, by=resolve_actor(user), reason=reason)
        self.write(_format_line(endpoint))

    def do_list(self, json: bool, **options: Any) -> None:
        endpoints = Endpoint.objects.prefetch_related("models")
        if json:
            self.write_json(
                [
                    {
                        "name": endpoint.name,
                        "provider": endpoint.provider,
                        "base_url": endpoint.base_url,
                        "key_env": endpoint.key_env,
                        "max_concurrency": endpoint.max_concurrency,
                        "in_flight": endpoint.in_flight,
                        **{field: getattr(endpoint, field) for field in RATES},
                        "batch_api": endpoint.batch_api,
                        "provider_routes": endpoint.provider_routes,
                        "local_server": endpoint.local_server,
                        "in_batches": endpoint.in_batches,
                        "day_zone": endpoint.day_zone,
                        "adaptive": endpoint.adaptive,
                        "free": endpoint.is_free,
                        "active": endpoint.is_active,
                        "models": [model.name for model in endpoint.models.all()],
                    }
                    for endpoint in endpoints
                ]
            )
            return
        for endpoint in endpoints:
            self.write(_format_line(endpoint))

    def do_check(self, name: str, user: str, **options: Any) -> None:
        endpoint = Endpoint.objects.filter(name=name).first()
        if endpoint is None:
            refuse_input(f"name: there is no endpoint {name}")
        models = list(endpoint.models.values_list("pk", flat=True))
        if not models:
            refuse_input(f"name: endpoint {name} has no models; create one with `model set`")
        make_preflights(self, models, by=resolve_actor(user))

    def do_models(
        self, name: str, add: list[str], update: bool, json: bool, user: str, reason: str, **options: Any
    ) -> None:
        endpoint = Endpoint.objects.filter(name=name).first()
        if endpoint is None:
            refuse_input(f"name: there is no endpoint {name}")
        try:
            changes = model_lists.find_changes(endpoint, model_lists.fetch_models(endpoint))
        except CallFailure as failure:
            raise CommandError(f"the list of {name} was not read: {failure.message}", returncode=WORK_FAILED) from None
        unlisted = set(add) - {change.listed.model for change in changes}
        if unlisted:
            refuse_input(f"--add: {endpoint} does not list {', '.join(sorted(unlisted))}; nothing was changed")
        chosen = [change for change in changes if change.listed.model in add or (update and not change.is_new)]
        if json:
            self.write_json(
                [
                    {
                        "model": change.listed.model,
                        **change.listed.prices,
                        "context_length": change.listed.context_length,
                        "max_output_tokens": change.listed.max_output_tokens,
                        "sees_images": change.listed.sees_images,
                        "note": change.listed.note,
                        "name": change.name,
                        "new": change.is_new,
                        "changes": change.fields,
                    }
                    for change in changes
                ]
            )
        else:
            for change in chosen if add or update else changes:
                price_in, price_out = (change.listed.prices[kind] for kind in ("input_price", "output_price"))
                price = "price not stated"
                if price_in is not None and price_out is not None:
                    price = f"${price_in.normalize():f} in, ${price_out.normalize():f} out"
                self.write(f"{change.listed.model:<48} {price:<30} {change.summary} {change.listed.note}".rstrip())
        if not (add or update):
            return
        try:
            added, updated = model_lists.apply_changes(endpoint, chosen, by=resolve_actor(user), reason=reason)
        except ValidationError as error:
            refuse_input("; ".join(error.messages))
        self.stderr.write(f"{added} models added, {updated} updated from the {endpoint.price_source}")


def _add_set_options(parser: ArgumentParser) -> None:
    """Add the options that set the fields of an endpoint."""
    parser.add_argument("name")
    parser.add_argument("--provider", choices=Endpoint.Provider.values)
    parser.add_argument("--base-url", metavar="URL")
    parser.add_argument("--key-env", metavar="VAR", help="the environment variable that holds the key")
    parser.add_argument("--max-concurrency", type=int, metavar="N", help="calls in flight over all workers")
    parser.add_argument("--rpm", type=int, metavar="N", help="requests per minute; 0 for no limit")
    parser.add_argument("--tpm", type=int, metavar="N", help="tokens per minute; 0 for no limit")
    parser.add_argument("--rpd", type=int, metavar="N", help="requests per day; 0 for no limit")
    parser.add_argument("--day-zone", metavar="ZONE", help="time zone in which a day starts")
    parser.add_argument(
        "--routes",
        dest="provider_routes",
        type=split_names,
        metavar="NAME,...",
        help="OpenRouter providers; each retry uses the next one",
    )
    parser.add_argument(
        "--local-server",
        type=lambda name: "" if name == "none" else name,
        choices=["", *Endpoint.LocalServer.values],
        metavar="ollama|none",
        help="unload a model that stalls",
    )
    parser.add_argument("--batch-api", choices=Endpoint.BatchApi.values, help="its batch API")
    parser.add_argument("--batch-max-requests", type=int, metavar="N", help="maximum calls per batch")
    parser.add_argument("--batch-max-open", type=int, metavar="N", help="maximum open batches")
    add_switches(parser, SWITCHES)
    add_reason(parser)


def _format_line(endpoint: Endpoint) -> str:
    state = "active" if endpoint.is_active else "inactive"
    prices = "free" if endpoint.is_free else "priced"
    address = endpoint.base_url or "the provider's own address"
    load = f"{endpoint.in_flight}/{endpoint.max_concurrency} in flight"
    limits = [f"{limit} {field.replace('_', ' ')}" for field in RATES if (limit := getattr(endpoint, field))]
    rates = f" (at most {', '.join(limits)})" if limits else ""
    return (
        f"{endpoint.name:<20} {endpoint.provider:<12} {state:<8} {prices:<6} {load}  "
        f"{_format_key(endpoint):<24} {address}{rates}"
    )


def _format_key(endpoint: Endpoint) -> str:
    """Return the key variable, and whether it is set on this machine. A worker's machine may differ."""
    if not endpoint.key_env:
        return "no key"
    return f"{endpoint.key_env} ({'set' if os.environ.get(endpoint.key_env) else 'not set'} here)"
