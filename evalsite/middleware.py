"""What holds for every request: signing in, caches, and the reader's time zone, which a cookie names."""

import zoneinfo
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import unquote

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from evalsite.lib.addresses import page_of

TZ_COOKIE = "tz"


@cache
def known_zones() -> frozenset[str]:
    """The names this machine knows. Kept: reading them walks the whole zone database."""
    return frozenset(zoneinfo.available_timezones())


class TimezoneMiddleware:
    """Activates the zone of the `tz` cookie for one request; anything but a known name leaves the default."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        name = unquote(request.COOKIES.get(TZ_COOKIE, ""))
        zone = zoneinfo.ZoneInfo(name) if name in known_zones() else None
        with timezone.override(zone):
            return self.get_response(request)


class SignInRequiredMiddleware(LoginRequiredMiddleware):
    """After signing in, a person is led back to a page, also from a form that was sent too late."""

    def handle_no_permission(self, request: HttpRequest, view_func: Any) -> HttpResponse:  # type: ignore[override]
        answer = redirect_to_login(page_of(request))
        if not request.headers.get("HX-Request"):
            return answer
        # htmx would put the sign-in page into a part of the open one.
        return HttpResponse(status=204, headers={"HX-Redirect": answer.url})


class NoStoreMiddleware:
    """What a signed-in person sees is kept by no cache, unless its view has its own rule, as images have."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if not response.has_header("Cache-Control") and request.user.is_authenticated:
            response["Cache-Control"] = "private, no-store"
        return response
