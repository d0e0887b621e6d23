"""The admin of the history."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from evalsite.lib.history import StatusChange
from evalsite.lib.web.admin import ReadOnlyAdmin


@admin.register(StatusChange)
class StatusChangeAdmin(ReadOnlyAdmin):
    """A read-only admin of the history of all rows."""

    list_display = ["at", "actor", "content_type", "object_id", "aspect", "from_value", "to_value", "reason"]
    list_filter = ["aspect", "content_type"]
    search_fields = ["actor", "reason", "to_value"]
    list_select_related = ["content_type"]
    date_hierarchy = "at"

    def get_queryset(self, request: HttpRequest) -> QuerySet[StatusChange]:
        return StatusChange.objects.visible_to(request.user)
