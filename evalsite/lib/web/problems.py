"""Errors of the API as problem details (RFC 9457), for programs that read them."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from django.http import HttpRequest, JsonResponse

PROBLEM_TYPE = "application/problem+json"
API_ROOT = "/api/v1/"
METRICS = "/metrics"


def is_for_programs(request: HttpRequest) -> bool:
    """Return whether the address belongs to the API, whose errors are no pages."""
    return request.path_info.startswith(API_ROOT) or request.path_info == METRICS


def make_problem(status: int, detail: str, errors: Sequence[tuple[str, str]] = ()) -> JsonResponse:
    """Return a response with problem details. `errors` has the name and the message of each wrong field."""
    content: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if errors:
        content["errors"] = [{"field": field, "message": message} for field, message in errors]
    return JsonResponse(content, status=status, content_type=PROBLEM_TYPE)
