"""Endpoints and the models that they serve, with their prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Self
from zoneinfo import available_timezones

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import TextChoices  # Not models.TextChoices: the related name "models" hides it in a class body.
from django.utils import timezone

from datasets_app.models.datasets import slug_validator
from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.permissions import is_member
from runs_app.llm import keys
from runs_app.llm.model_families import is_same_family
from runs_app.llm.providers import PROVIDERS, SELF_HOSTED
from runs_app.llm.url_allowlist import find_url_problem
from runs_app.models.bounded import InRange, RangeConstraint, build_range_constraints
from runs_app.models.engine_owned_columns import PricedResource
from runs_app.pricing import token_counter, tokens
from runs_app.pricing.costs import Prices


def validate_key_name(name: str) -> None:
    if problem := keys.find_name_problem(name):
        raise ValidationError(problem)


def validate_time_zone(name: str) -> None:
    if name not in available_timezones():
        raise ValidationError(f"{name} is not the name of a time zone, such as Europe/Berlin.")


class GroupOwnedQuerySet(models.QuerySet[Any]):
    """Rows that belong to the whole group: members see all of them."""

    def visible_to(self, user: Any) -> Self:
        return self if is_member(user) else self.none()


def _build_choices(name: str, labels: Mapping[str, str]) -> Any:
    """Return an enumeration of these values, whose members have their names in upper case."""
    enumeration: Any = TextChoices
    return enumeration(name, [(value.upper(), (value, label)) for value, label in labels.items()])


FROZEN = "the settings of earlier calls cannot change."  # The end of an error message.


@constrain_numbers()
@constrain_choices
class Endpoint(PricedResource):
    """One API that serves models. Workers lock its row, because its limits hold for all of them together."""

    # Each provider declares itself. A new one needs a migration, because the database checks the choices.
    Provider = _build_choices("Provider", {name: provider.label for name, provider in PROVIDERS.items()})

    class LocalServer(TextChoices):
        OLLAMA = "ollama", "Ollama"

    BatchApi = _build_choices(
        "BatchApi",
        {"none": "None", **{name: provider.batch_label for name, provider in PROVIDERS.items() if provider.batch_api}},
    )

    # An endpoint of an imported study names its provider as the study does. It is never called.
    OTHER_VALUES = {"provider": models.Q(is_active=False)}
    PRICE_ERROR_FIELD = "is_free"
    CONDITION_LOOKUP = "model__endpoint"

    name = models.CharField(max_length=80, unique=True, validators=[slug_validator])
    provider = models.CharField(max_length=80, choices=Provider, default="openai")
    base_url = models.CharField(
        "base URL", max_length=500, blank=True, help_text="Empty: the provider's default address"
    )
    key_env = models.CharField(
        "key variable",
        max_length=80,
        blank=True,
        validators=[validate_key_name],
        help_text="Environment variable that holds the API key: OPENAI_API_KEY, or EVALSITE_KEY_ and a name",
    )
    max_concurrency = models.PositiveIntegerField(
        default=16, validators=[InRange("endpoint", "max_concurrency")], help_text="Calls in flight over all workers"
    )
    is_free = models.BooleanField("free", default=False, help_text="Calls cost nothing, for example on your own server")
    is_active = models.BooleanField("active", default=True)
    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, validators=[InRange("endpoint", "requests_per_minute")]
    )
    tokens_per_minute = models.PositiveIntegerField(
        null=True, blank=True, validators=[InRange("endpoint", "tokens_per_minute")]
    )
    requests_per_day = models.PositiveIntegerField(
        null=True, blank=True, validators=[InRange("endpoint", "requests_per_day")]
    )
    day_zone = models.CharField(
        "time zone of the daily limit",
        max_length=40,
        default="UTC",
        validators=[validate_time_zone],
        help_text="Time zone in which a day starts",
    )
    adaptive = models.BooleanField(
        default=True,
        help_text="Adjusts calls in flight to the load of the endpoint",
    )
    batch_api = models.CharField(
        "batch API",
        max_length=10,
        choices=BatchApi,
        default=BatchApi.NONE,
        help_text="Experiments can use it",
    )
    batch_max_requests = models.PositiveIntegerField(
        "calls per batch",
        default=5_000,
        validators=[InRange("endpoint", "batch_max_requests")],
        help_text="Maximum per batch",
    )
    batch_max_open = models.PositiveIntegerField(
        "open batches",
        default=4,
        validators=[InRange("endpoint", "batch_max_open")],
        help_text="Maximum over all runs",
    )
    provider_routes = models.JSONField(
        default=list,
        blank=True,
        help_text="OpenRouter's names of the providers to use. Each retry uses the next one",
    )
    local_server = models.CharField(
        max_length=10,
        choices=LocalServer,
        blank=True,
        default="",
        help_text="Unloads a model that stalls (three time-outs in a row)",
    )
    allowed_host = models.CharField(
        "host allowed by an operator",
        max_length=300,
        blank=True,
        default="",
        db_default="",
        help_text="Host of the base URL, in addition to those in EVALSITE_LLM_ALLOWED_HOSTS",
    )
    in_flight = models.IntegerField(default=0, editable=False)
    in_batches = models.IntegerField(default=0, editable=False, help_text="Trials that batches hold, not in flight")
    throttle = models.JSONField(
        default=dict, editable=False, help_text="State of its rate limiter and its learned concurrency limit"
    )
    paused_until = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Set after a response with status 429 or an overload"
    )
    pause_reason = models.CharField(max_length=200, blank=True, editable=False)
    route_changed_at = models.DateTimeField(
        null=True,
        editable=False,
        help_text="Last change of address, provider or key variable. Set by a trigger",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = GroupOwnedQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            *build_range_constraints("endpoint"),
            RangeConstraint(
                condition=models.Q(key_env="")
                | (models.Q(key_env__regex=keys.NAME) & ~models.Q(key_env__regex=keys.OWN)),
                name="endpoint_key_env_is_a_key",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_paused(self) -> bool:
        return self.paused_until is not None and self.paused_until > timezone.now()

    @property
    def accepts_batches(self) -> bool:
        return self.batch_api != "none"

    @property
    def has_list_prices(self) -> bool:
        return not self.is_free and self.provider not in SELF_HOSTED

    @property
    def is_in_use(self) -> bool:
        """Return whether conditions exist for its models.

        A condition records the provider, so the provider cannot change.
        """
        return not self._state.adding and self.models.filter(conditions__isnull=False).exists()

    @property
    def allowed_hosts(self) -> list[str]:
        """Return the hosts that this endpoint may call, besides loopback and the providers' own."""
        return [*settings.LLM_ALLOWED_HOSTS, *([self.allowed_host] if self.allowed_host else [])]

    def clean(self) -> None:
        super().clean()
        if self.is_in_use and self.provider != Endpoint.objects.values_list("provider", flat=True).get(pk=self.pk):
            raise ValidationError({"provider": f"{self} is in use: {FROZEN} Create a new endpoint."})
        if self.base_url and (problem := find_url_problem(self.base_url, self.allowed_hosts)):
            raise ValidationError({"base_url": problem})
        if not isinstance(self.provider_routes, list) or not all(
            isinstance(name, str) for name in self.provider_routes
        ):
            raise ValidationError({"provider_routes": 'Enter a list of names, such as ["azure", "openai"].'})
        provider = PROVIDERS.get(self.provider)
        if self.provider_routes and not (provider and provider.takes_routes):
            raise ValidationError({"provider_routes": "Provider routes work only with OpenRouter."})
        if self.batch_api not in (self.BatchApi.NONE, self.provider):
            raise ValidationError(
                {"batch_api": f"{self.get_provider_display()} does not support {self.get_batch_api_display()}."}
            )

    @property
    def price_source(self) -> str:
        return f"model list of {self.base_url or self.get_provider_display()}"[:200]


@constrain_numbers()
class EndpointTick(models.Model):
    """Ten seconds of one endpoint: its concurrency limit and the outcomes of its calls."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="ticks")
    at = models.DateTimeField(help_text="Start of the ten seconds")
    concurrency = models.FloatField(help_text="Learned limit at the end of the ten seconds")
    answered = models.IntegerField(default=0)
    overloaded = models.IntegerField(default=0)

    class Meta:
        ordering = ["at"]
        constraints = [models.UniqueConstraint(fields=["endpoint", "at"], name="endpoint_tick_at")]

    def __str__(self) -> str:
        return f"{self.endpoint_id} at {self.at:%H:%M:%S}"


PRICES = ("input_price", "output_price", "cache_read_price", "cache_write_price")


def _prices_have_source() -> models.Q:
    """Return the condition that a row with a price also has its source and date."""
    unpriced = models.Q(**{f"{name}__isnull": True for name in PRICES})
    return unpriced | models.Q(~models.Q(price_source=""), price_date__isnull=False)


@constrain_numbers()
class LanguageModel(PricedResource):
    """A model id at an endpoint, with prices in US dollars per million tokens."""

    PRICE_ERROR_FIELD = "input_price"
    CONDITION_LOOKUP = "model"

    name = models.CharField(max_length=80, unique=True, validators=[slug_validator])
    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="models")
    model = models.CharField(max_length=200, help_text="The provider's ID of the model")
    input_price = models.DecimalField(
        max_digits=12, decimal_places=6, null=True, blank=True, validators=[InRange("languagemodel", "input_price")]
    )
    output_price = models.DecimalField(
        max_digits=12, decimal_places=6, null=True, blank=True, validators=[InRange("languagemodel", "output_price")]
    )
    cache_read_price = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        validators=[InRange("languagemodel", "cache_read_price")],
    )
    cache_write_price = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        validators=[InRange("languagemodel", "cache_write_price")],
    )
    max_output_tokens = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[InRange("languagemodel", "max_output_tokens")],
        help_text="Maximum tokens in one answer. Limits the cost of calls without max_tokens",
    )
    batch_discount = models.DecimalField(
        max_digits=4,
        decimal_places=3,
        default=Decimal("0.5"),
        validators=[InRange("languagemodel", "batch_discount")],
        help_text="Discount of the batch API, 0 to 1",
    )
    cache_marks = models.BooleanField(
        "prompt cache markers",
        default=False,
        help_text="Marks the shared part of each request for the provider's cache (Anthropic's cache_control)",
    )
    stalls = models.PositiveSmallIntegerField(default=0, editable=False, help_text="Time-outs in a row")
    price_source = models.CharField(
        max_length=200, blank=True, help_text="Source of the prices, such as the address of a price list"
    )
    price_date = models.DateField(null=True, blank=True, help_text="Date of the prices. Empty: today")
    sees_images = models.BooleanField(default=True)
    structured_output = models.BooleanField(default=True, help_text="Accepts a strict JSON schema")
    schema_refused_at = models.DateTimeField(
        null=True, editable=False, help_text="Its provider refused a strict JSON schema, so calls are made without one"
    )
    schema_refusal = models.CharField(max_length=200, blank=True, default="", db_default="", editable=False)
    groups = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        validators=[RegexValidator(r"^\S+( \S+)*\Z", "Separate groups by single spaces.")],
        help_text="Tags for filters of the leaderboard, separated by spaces, such as size:large arch:moe",
    )
    is_active = models.BooleanField("active", default=True)
    route_changed_at = models.DateTimeField(
        null=True, editable=False, help_text="Time of the last change of ID or endpoint. Set by a trigger"
    )

    last_preflights: list[Any]  # Set by `prefetch_last_preflights`: at most one.

    objects = GroupOwnedQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            *build_range_constraints("languagemodel"),
            RangeConstraint(condition=_prices_have_source(), name="languagemodel_price_has_source"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_in_use(self) -> bool:
        """Return whether conditions use it. A condition records its id and provider, so these cannot change."""
        return not self._state.adding and self.conditions.exists()

    @property
    def has_price(self) -> bool:
        """Return whether any of its prices is set."""
        return any(getattr(self, name) is not None for name in PRICES)

    def clean(self) -> None:
        super().clean()
        if self.has_price and not self.price_source.strip():
            raise ValidationError({"price_source": "Enter the source of the prices, such as a price list."})
        if self.has_price and self.price_date is None:
            self.price_date = timezone.now().date()
        if self.is_in_use:
            stored = LanguageModel.objects.select_related("endpoint").get(pk=self.pk)
            if problem := self._find_identity_problem(stored):
                raise ValidationError(problem)

    def _find_identity_problem(self, stored: LanguageModel) -> dict[str, str]:
        """Return the error of a change that would break the identity of earlier calls, by field. Empty if none.

        Database triggers refuse the same changes.
        """
        if self.model != stored.model:
            return {"model": f"{stored} is in use: {FROZEN} Create a new model."}
        if self.endpoint.provider != stored.endpoint.provider:
            return {"endpoint": f"{stored} is in use, at {stored.endpoint.provider}: {FROZEN} Create a new model."}
        if self.endpoint_id != stored.endpoint_id and self.conditions.filter(runs__n_running__gt=0).exists():
            return {"endpoint": "Calls to this model are in flight or in batches. Pause its runs and wait."}
        return {}

    @property
    def prices(self) -> Prices:
        """Return the prices of a call. At a free endpoint they are zero. An unset price is unknown."""
        if self.endpoint.is_free:
            return Prices(Decimal(0), Decimal(0), Decimal(0), Decimal(0), source="free endpoint")
        return Prices(
            self.input_price,
            self.output_price,
            self.cache_read_price,
            self.cache_write_price,
            source=self.price_source,
            as_of=self.price_date,
        )

    @property
    def refuses_schema(self) -> bool:
        """Return whether its provider refused a schema since the last change of its address."""
        at, changes = self.schema_refused_at, (self.route_changed_at, self.endpoint.route_changed_at)
        return at is not None and all(changed is None or changed < at for changed in changes)

    @property
    def marks_head(self) -> bool:
        """Return whether requests carry cache marks.

        Other providers may refuse a request with this unknown field.
        """
        provider = PROVIDERS.get(self.endpoint.provider)
        return self.cache_marks and provider is not None and provider.takes_cache_marks

    @property
    def identity(self) -> dict[str, str]:
        """Return the part of a model that belongs to a condition: its provider and id, but not its endpoint."""
        return {"provider": self.endpoint.provider, "model": self.model}

    def build_spec(self) -> dict[str, Any]:
        return {"name": self.name, "endpoint": self.endpoint.name, "model": self.model}

    def describe_token_rules(self, *, shows_images: bool = False) -> str:
        """Return a text about the rules that count a model's tokens."""
        rule = tokens.find_text_rule(self.model)
        rule = tokens.FAILED if rule.tokenizer in token_counter.failed_tokenizers else rule
        counted_by = f"text by {rule.description}" if rule.tokenizer else rule.description
        if not shows_images:
            return counted_by
        images = tokens.find_image_rule(self.model)
        return f"{counted_by}; images by {images.description} ({images.read.isoformat()})"

    def find_relatives(self, models: Iterable[LanguageModel]) -> list[LanguageModel]:
        """Return the models of its own family. A judge may prefer their answers."""
        own = self.endpoint.provider, self.model
        return [model for model in models if is_same_family(own, (model.endpoint.provider, model.model))]
