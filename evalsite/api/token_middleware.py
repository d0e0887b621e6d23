"""Middleware of the API: access tokens, the limit on requests, conditional answers, and errors as problem details."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from django.contrib.auth import get_user
from django.contrib.sessions.middleware import SessionMiddleware
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse
from django.http.cookie import parse_cookie
from django.utils.cache import get_conditional_response, patch_vary_headers
from ninja.utils import check_csrf

from evalsite.api.problems import NOT_FOUND
from evalsite.lib.models import FailedSignIn, TooManyFailures
from evalsite.lib.permissions import is_reader
from evalsite.lib.web.problem_responses import (
    PROBLEM_TYPE,
    is_for_programs,
    is_of_gateway,
    make_gateway_error,
    make_problem,
)
from evalsite.lib.web.sign_in import get_client_address
from runs_app.models import ApiAllowance, ApiToken

SAFE = ("GET", "HEAD", "OPTIONS")
MAX_GUESSES = 100
"""Wrong tokens that one address may send within FailedSignIn.WINDOW."""
DETAILS = {
    400: "The request is malformed.",
    403: "Your account may not do this.",
    404: NOT_FOUND,
    405: "This address does not accept the method. The header Allow lists the methods that it accepts.",
    413: "The request is too large.",
    500: "The site failed to answer. Its log has the reason. Try again, and tell an operator if it fails again.",
}
Next = Callable[[HttpRequest], HttpResponse]


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


class ProblemMiddleware:
    """Middleware that replaces error pages by problem details for addresses of the API."""

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code < 400 or not is_for_programs(request):
            return response
        is_problem = response.get("Content-Type", "").startswith(PROBLEM_TYPE)
        if is_of_gateway(request):
            if not is_problem and response.get("Content-Type") == "application/json":
                return response
            detail = json.loads(response.content)["detail"] if is_problem else DETAILS.get(response.status_code)
            problem = make_gateway_error(request, response.status_code, detail or response.reason_phrase)
        elif is_problem:
            return response
        else:
            problem = make_problem(response.status_code, DETAILS.get(response.status_code, response.reason_phrase))
        for name in ("Allow", "Retry-After", "WWW-Authenticate"):
            if name in response:
                problem[name] = response[name]
        return problem


class TokenMiddleware:
    """Middleware that signs requests to the API in by their access token, for this request only.

    It follows the authentication of sessions. With an Authorization header, the session does not count. The account's
    role is read again at each request. A session may change data only with its CSRF token.
    """

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not is_for_programs(request):
            return self.get_response(request)
        response = self._refuse(request) or self.get_response(request)
        patch_vary_headers(response, ["Authorization", "Cookie"])
        # Add an ETag of the content, and answer 304 if the client has this content. Streams have no ETag.
        if response.streaming or response.status_code != 200 or request.method not in ("GET", "HEAD"):
            return response
        response["Cache-Control"] = "private, no-cache"  # A client may keep it, and asks whether it has changed.
        response["ETag"] = f'"{hashlib.sha256(response.content).hexdigest()[:32]}"'
        return get_conditional_response(request, etag=response["ETag"], response=response) or response

    def _refuse(self, request: HttpRequest) -> HttpResponse | None:
        """Sign the request in. Return None, or the response to a request that may not go on."""
        request.api_token = None  # type: ignore[attr-defined]
        header = request.headers.get("Authorization", "")
        if not header and is_of_gateway(request) and (key := request.headers.get("x-api-key", "")):
            header = f"Bearer {key}"  # As clients of Anthropic's API send it.
        if header or "Authorization" in request.headers:
            token = ApiToken.objects.find_bearer(header)
            if token is None:
                return _refuse_token(request)
            request.user, request.api_token = token.user, token  # type: ignore[attr-defined]
            request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined]  # No browser adds the header.
            token.record_use()
        elif not request.user.is_authenticated:
            return _ask_for_token("Send `Authorization: Bearer TOKEN`. Make a token under your account menu.")
        elif request.method not in SAFE and check_csrf(request) is not None:
            return make_problem(403, "A session changes data only with its CSRF token. Send an access token instead.")
        if not is_reader(request.user):
            return make_problem(404, NOT_FOUND)
        # The gateway's calls have the limits of their endpoint and their experiment instead.
        if not is_of_gateway(request) and not ApiAllowance.take(request.user):
            limit = ApiAllowance.PER_SECOND
            response = make_problem(429, f"Your account sends too many requests. It may send {limit} a second.")
            response["Retry-After"] = "1"
            return response
        return None


def _ask_for_token(detail: str) -> HttpResponse:
    response = make_problem(401, detail)
    response["WWW-Authenticate"] = 'Bearer realm="Evalsite"'
    return response


def _refuse_token(request: HttpRequest) -> HttpResponse:
    """Return the same answer for every wrong token. An address with too many of them has to wait."""
    try:
        FailedSignIn.objects.begin({f"token {get_client_address(request)}": MAX_GUESSES})
    except TooManyFailures as refusal:
        response = make_problem(429, "There were too many wrong tokens from this address.")
        response["Retry-After"] = str(refusal.seconds)
        return response
    return _ask_for_token("The token is wrong, has expired or was revoked, or its account is not active.")
