"""The admin of endpoints, models and prices. It stores the names of API keys, never the keys."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db import models, transaction
from django.http import HttpRequest

from evalsite.lib.bounded_json import BoundedJSONField
from evalsite.lib.history import record_changes, save_with_history
from evalsite.lib.web.admin import history_list
from runs_app.forms.definitions import MappingsForm
from runs_app.models import Endpoint, LanguageModel


class HistoryAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The admin base class that records each change in the history, as the site's own pages do."""

    actions = None
    form = MappingsForm
    formfield_overrides = {models.JSONField: {"form_class": BoundedJSONField}}

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        save_with_history(obj, by=request.user)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        with transaction.atomic():
            record_changes([(obj, str(obj), "deleted")], by=request.user, reason="")
            super().delete_model(request, obj)


@admin.register(Endpoint)
class EndpointAdmin(HistoryAdmin):
    list_display = ["name", "provider", "base_url", "key_env", "max_concurrency", "in_flight", "is_free", "is_active"]
    list_filter = ["provider", "is_free", "is_active"]
    search_fields = ["name", "base_url"]
    readonly_fields: ClassVar[Any] = ["in_flight", "paused_until", "pause_reason", "created_at", history_list]


@admin.register(LanguageModel)
class LanguageModelAdmin(HistoryAdmin):
    list_display = ["name", "endpoint", "model", "input_price", "output_price", "price_date", "is_active"]
    list_filter = ["endpoint", "is_active", "sees_images", "structured_output"]
    list_select_related = ["endpoint"]
    search_fields = ["name", "model"]
    readonly_fields: ClassVar[Any] = ["last_preflight", history_list]

    @admin.display(description="last preflight")
    def last_preflight(self, model: LanguageModel) -> str:
        last = model.preflights.first() if model.pk else None
        return f"{last.get_status_display()}, by {last.actor}. {last.result_text}" if last else "-"
