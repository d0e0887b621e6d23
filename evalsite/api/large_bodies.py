"""The check of who sends a large request body, before the web server reads it."""

from __future__ import annotations

from django.contrib.auth import get_user
from django.contrib.sessions.middleware import SessionMiddleware
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse
from django.http.cookie import parse_cookie

from runs_app.models import ApiToken


def is_sent_by_an_account(cookies: str, authorization: str) -> bool:
    """Return whether the request has the session of a user or a usable access token, by these two headers.

    A request with the header Authorization counts by its token alone, as in `TokenMiddleware`.
    """
    close_old_connections()
    try:
        if authorization:
            return ApiToken.objects.find_bearer(authorization) is not None
        request = HttpRequest()
        request.COOKIES = parse_cookie(cookies)
        SessionMiddleware(lambda _: HttpResponse()).process_request(request)
        return bool(get_user(request).is_authenticated)
    finally:
        close_old_connections()
