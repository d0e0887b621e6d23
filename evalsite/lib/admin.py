"""The admin of the history."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from evalsite.lib.history import StatusChange


@admin.register(StatusChange)
class StatusChangeAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """A read-only admin of the history of all rows."""

    list_display = ["at", "actor", "content_type", "object_id", "aspect", "from_value", "to_value", "reason"]
    list_filter = ["aspect", "content_type"]
    search_fields = ["actor", "reason", "to_value"]
    list_select_related = ["content_type"]
    date_hierarchy = "at"
    actions = None

    def get_queryset(self, request: HttpRequest) -> QuerySet[StatusChange]:
        return StatusChange.objects.visible_to(request.user)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
