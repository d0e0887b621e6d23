"""Where models are served, and their prices. Keys are named here, never entered."""

from __future__ import annotations

from django.contrib import admin

from runs_app.models import Endpoint, LanguageModel


@admin.register(Endpoint)
class EndpointAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["name", "provider", "base_url", "key_env", "max_concurrency", "in_flight", "is_free", "is_active"]
    list_filter = ["provider", "is_free", "is_active"]
    search_fields = ["name", "base_url"]
    readonly_fields = ["in_flight", "paused_until", "pause_reason", "created_at"]
    actions = None


@admin.register(LanguageModel)
class LanguageModelAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["name", "endpoint", "model", "input_price", "output_price", "price_date", "is_active"]
    list_filter = ["endpoint", "is_active", "sees_images", "structured_output"]
    list_select_related = ["endpoint"]
    search_fields = ["name", "model"]
    readonly_fields = ["last_preflight"]
    actions = None

    @admin.display(description="last preflight")
    def last_preflight(self, model: LanguageModel) -> str:
        last = model.preflights.first()
        return f"{last.get_status_display()}, by {last.actor}. {last.said}" if last else "-"
