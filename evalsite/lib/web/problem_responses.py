"""Errors of the API as problem details (RFC 9457), for programs that read them."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from django.http import HttpRequest, JsonResponse

PROBLEM_TYPE = "application/problem+json"
API_ROOT = "/api/v1/"
METRICS = "/metrics"
GATEWAY_ROOT = "/gateway/"
GATEWAY_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def is_for_programs(request: HttpRequest) -> bool:
    """Return whether the address belongs to the API or the gateway, whose errors are no pages."""
    return request.path_info.startswith((API_ROOT, GATEWAY_ROOT)) or request.path_info == METRICS


def is_of_gateway(request: HttpRequest) -> bool:
    return request.path_info.startswith(GATEWAY_ROOT)


def make_gateway_error(request: HttpRequest, status: int, message: str, code: str = "") -> JsonResponse:
    """Return an error in the form of the API that the program called: Anthropic's, or else OpenAI's."""
    is_anthropic = request.path_info.endswith("/messages")
    return JsonResponse(build_gateway_error(is_anthropic, status, message, code), status=status)


def build_gateway_error(is_anthropic: bool, status: int, message: str, code: str = "") -> dict[str, object]:
    kind = GATEWAY_TYPES.get(status, "api_error")
    if is_anthropic:
        return {"type": "error", "error": {"type": kind, "message": message}}
    return {"error": {"message": message, "type": kind, "param": None, "code": code or kind}}


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
