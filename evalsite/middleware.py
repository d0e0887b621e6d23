"""Middleware for every request: health, invalid and invisible characters, sign-in, caching, and time zones."""

import re
import zoneinfo
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any
from urllib.parse import unquote

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.db import DataError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django_htmx.http import HttpResponseClientRefresh

from datasets_app.job_texts import describe_move
from evalsite import views
from evalsite.lib.text.characters import mark_html, mark_text
from evalsite.lib.web.sign_in import find_page
from grading_app.models import StoredRows
from runs_app.views.permissions import RowsAreStored, may_edit

TZ_COOKIE = "tz"
COMPRESSIBLE = re.compile(r"text/|image/svg\+xml|application/(?:json|javascript|xml)\b")


@cache
def list_zones() -> frozenset[str]:
    """Return the names of all time zones of this machine. The result is cached, because reading them is slow."""
    return frozenset(zoneinfo.available_timezones())


class HealthMiddleware:
    """Middleware that answers the health check before the `Host` header is checked, and without a session.

    Monitors, containers and `up` request it by address, which is not a host name of the site.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        is_health = request.path_info == reverse("healthz")
        return views.healthz(request) if is_health else self.get_response(request)


class CompressionMiddleware(GZipMiddleware):
    """Middleware that compresses pages, figures and JSON, and leaves downloads alone.

    Downloads are streamed: most are compressed formats, and a proxy may compress the others without this process. Each
    response gets up to 100 random bytes, and forms have a masked token. So the size of a page does not reveal what it
    says about a guessed text (the attack BREACH).
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if response.streaming or not COMPRESSIBLE.match(response.get("Content-Type", "")):
            return response
        return super().process_response(request, response)


class TimezoneMiddleware:
    """Middleware that activates the zone in the `tz` cookie for one request. An unknown name selects the default."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        name = unquote(request.COOKIES.get(TZ_COOKIE, ""))
        zone = zoneinfo.ZoneInfo(name) if name in list_zones() else None
        with timezone.override(zone):
            return self.get_response(request)


class SignInRequiredMiddleware(LoginRequiredMiddleware):
    """Middleware that requires sign-in and then returns the person to a page, even if the session expired at a POST."""

    def handle_no_permission(self, request: HttpRequest, view_func: Any) -> HttpResponse:  # type: ignore[override]
        redirect = redirect_to_login(find_page(request))
        if not request.headers.get("HX-Request"):
            return redirect
        # htmx would insert the sign-in page into a part of the current page.
        return HttpResponse(status=204, headers={"HX-Redirect": redirect.url})


class NoStoreMiddleware:
    """Middleware that forbids caches to store a signed-in person's pages. A view may set its own rule."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if not response.has_header("Cache-Control") and request.user.is_authenticated:
            response["Cache-Control"] = "private, no-store"
        return response


class StorableRequestMiddleware:
    """Middleware that answers 400 if a request is not UTF-8 or contains a NUL, which PostgreSQL cannot store.

    The page names the parameter. Addresses and cookies are refused before any view. A form reports a NUL in its own
    fields. If no form checks a value, the request is refused when the database rejects it.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.encoding and request.encoding.lower() not in {"utf-8", "utf8", "us-ascii"}:
            request.encoding = "utf-8"
            return _refuse(request, "The request is not written in UTF-8. Send it without another charset.")
        if "\x00" in request.path_info:
            return _refuse_nul(request, "The address")
        if name := _find_name_with_nul(request.GET.lists()):
            return _refuse_nul(request, f"The parameter {name} of the address")
        if name := _find_name_with_nul((name, [value]) for name, value in request.COOKIES.items()):
            return _refuse_nul(request, f"The cookie {name}")
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if isinstance(exception, OverflowError | ValueError) and _has_lookup(request):
            return _refuse(request, "A number in the address is too large or too small.")
        if not isinstance(exception, ValueError | DataError) or request.method != "POST":
            return None
        name = _find_name_with_nul(request.POST.lists())
        return _refuse_nul(request, f"The field {name}") if name else None


def _has_lookup(request: HttpRequest) -> bool:
    """Return whether an admin list is filtered by a lookup with a value whose range Django does not check."""
    match = request.resolver_match
    return bool(match and match.app_name == "admin") and any("__" in name for name in request.GET)


def _find_name_with_nul(parameters: Iterable[tuple[str, Iterable[object]]]) -> str:
    """Return the first parameter with a NUL character in its name or in a value, or "" if there is none."""
    return next((name for name, values in parameters if "\x00" in name or any("\x00" in str(v) for v in values)), "")


def _refuse_nul(request: HttpRequest, subject: str) -> HttpResponse:
    reason = f"{subject} contains a NUL character (U+0000), which cannot be stored. Remove it and try again."
    return _refuse(request, reason)


def _refuse(request: HttpRequest, reason: str) -> HttpResponse:
    return render(request, "400.html", {"reason": reason}, status=400)


class StoredRowsMiddleware:
    """Middleware that shows a notice, and how to bring rows back, in place of a page whose rows are in a file."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, RowsAreStored):
            return None
        experiment = exception.experiment
        job = StoredRows.find_job(experiment)
        context = {
            "experiment": experiment,
            "editable": may_edit(request, experiment),
            "stored": experiment.stored_rows,
            "job": job,
            "job_texts": describe_move(job) if job else None,
        }
        is_waiting = request.htmx.target == "rows-job"  # type: ignore[attr-defined]
        if is_waiting and not (job and job.is_waited_for):
            return HttpResponseClientRefresh()
        # htmx shows no response with an error.
        return render(request, "grading_app/experiment_stored.html", context, status=200 if is_waiting else 409)


class ControlCharactersMiddleware:
    """Middleware that makes bidirectional and terminal controls visible on every page.

    Model output, items, names and errors can contain them.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        kind = response.get("Content-Type", "").partition(";")[0]
        if response.streaming or kind not in {"text/html", "image/svg+xml"}:
            return response
        page = response.content.decode(response.charset or "utf-8", "surrogatepass")
        marked = mark_html(page) if kind == "text/html" else mark_text(page)
        if marked is not page:
            response.content = marked.encode(response.charset or "utf-8", "surrogatepass")
        return response
