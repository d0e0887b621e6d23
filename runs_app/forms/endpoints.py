"""Forms of endpoints and of the models that they serve."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms

from evalsite.lib.web.form_fields import offer_rows
from runs_app.forms.fields import lock_field, split_names, state_bounds
from runs_app.models import Endpoint, LanguageModel


class ChangeForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form of a row with a history. The user can give a reason for the change."""

    basic: ClassVar[tuple[str, ...]] = ()  # The fields that every row needs; the others are folded.

    reason = forms.CharField(max_length=500, required=False, label="Reason", help_text="Stored in the history")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        state_bounds(self)

    def list_basic(self) -> list[Any]:
        return [self[name] for name in self.basic]

    def list_advanced(self) -> list[Any]:
        return [field for field in self if field.name not in self.basic]

    def has_advanced_errors(self) -> bool:
        return any(field.errors for field in self.list_advanced())


class EndpointForm(ChangeForm):
    basic = ("provider", "base_url", "key_env", "name")

    class Meta:
        model = Endpoint
        fields = [
            "name", "provider", "base_url", "key_env", "max_concurrency", "adaptive", "requests_per_minute",
            "tokens_per_minute", "requests_per_day", "day_zone", "batch_api", "batch_max_requests", "batch_max_open",
            "provider_routes", "local_server", "is_free", "is_active",
        ]  # fmt: skip
        labels = {"max_concurrency": "Calls in flight", "key_env": "API key variable", "base_url": "Base URL"}

    provider_routes = forms.CharField(
        max_length=500,
        required=False,
        label="Provider routes",
        help_text="Comma-separated OpenRouter provider names. Each retry goes to the next provider",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["provider_routes"] = ", ".join(self.instance.provider_routes)
        if self.instance.is_in_use:
            lock_field(self.fields["provider"], "In use. To change the provider, create a new endpoint")

    def clean_provider_routes(self) -> list[str]:
        return split_names(self.cleaned_data["provider_routes"])


class LanguageModelForm(ChangeForm):
    basic = ("name", "endpoint", "model", "input_price", "output_price", "price_source", "price_date")

    class Meta:
        model = LanguageModel
        fields = [
            "name", "endpoint", "model", "input_price", "output_price", "cache_read_price", "cache_write_price",
            "batch_discount", "price_source", "price_date", "max_output_tokens", "sees_images", "structured_output",
            "cache_marks", "groups", "is_active",
        ]  # fmt: skip
        labels = {
            "model": "Model ID",
            "input_price": "Input price",
            "output_price": "Output price",
            "cache_read_price": "Cache read price",
            "cache_write_price": "Cache write price",
            "max_output_tokens": "Maximum output tokens",
        }
        help_texts = {"input_price": "US dollars per million tokens. Empty: unknown, not free"}
        # Browsers accept only ISO dates in such a field. With another format the field is empty and submits nothing.
        widgets = {"price_date": forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.is_in_use:
            lock_field(self.fields["model"], "In use. To change the ID, create a new model")
            offer_rows(self, "endpoint", Endpoint.objects.filter(provider=self.instance.endpoint.provider))
            self.fields["endpoint"].help_text = "Only endpoints of the same provider, while no call is in flight"
