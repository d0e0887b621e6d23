"""Times are shown in the reader's zone, which the browser tells by a cookie."""

import zoneinfo
from collections.abc import Callable
from functools import cache
from urllib.parse import unquote

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

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
