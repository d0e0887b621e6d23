"""The admin site, and shared parts of the apps' admins.

Roles grant access to the site, and its sign-in page is that of all pages. The parts are read-only rows, rows for
superusers only, and the history of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from django.contrib import admin
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.cache import never_cache

from evalsite.lib.permissions import uses_admin


class EvalsiteAdminSite(admin.AdminSite):
    def has_permission(self, request: HttpRequest) -> bool:
        """Return whether the user's role opens the admin. The permissions of the groups limit the actions inside it."""
        return uses_admin(request.user)

    @method_decorator(never_cache)
    @method_decorator(login_not_required)
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Redirect to the site's sign-in page, which preserves `next` and limits password guessing."""
        target = request.GET.get("next") or request.POST.get("next") or reverse("admin:index", current_app=self.name)
        return redirect_to_login(target)

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Callable[..., Any]:  # type: ignore[override]
        """Wrap an admin view so that a signed-in person without access gets a 404.

        Without this, Django would redirect them to the sign-in page in a loop.
        """
        inner = super().admin_view(view, cacheable)

        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if request.user.is_authenticated and not self.has_permission(request):
                raise Http404
            return inner(request, *args, **kwargs)

        return update_wrapper(guarded, inner)


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
