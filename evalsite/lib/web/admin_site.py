"""The admin site: roles grant access, and its sign-in page is the site's own."""

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
