"""Shared parts of the apps' admins: read-only rows, rows for superusers only, and the history of a row."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """An admin for rows that programs write, or that people change on the site's own pages."""

    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class SuperusersOnly:
    """A mixin before an admin class. Only superusers see the rows, whatever permissions other users have."""

    def _is_superuser(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_superuser)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self._is_superuser(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._is_superuser(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self._is_superuser(request) and super().has_add_permission(request)  # type: ignore[misc]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._is_superuser(request) and super().has_change_permission(request, obj)  # type: ignore[misc]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._is_superuser(request) and super().has_delete_permission(request, obj)  # type: ignore[misc]


@admin.display(description="history")
def history_list(row: Any) -> SafeString | str:
    """Return a list of every change of state with its author, time and reason. The row must have a `history`."""
    lines = [
        (change.at.strftime("%Y-%m-%d %H:%M:%S UTC"), change.actor, change.aspect, change.to_value, change.reason)
        for change in row.history
    ]
    if not lines:
        return "-"
    return format_html("<ul>{}</ul>", format_html_join("", "<li>{} · {} · {}: {} <em>{}</em></li>", lines))
