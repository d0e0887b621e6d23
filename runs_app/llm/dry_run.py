"""Transports that send nothing: one captures a request, the other replays a reply from a batch."""

from __future__ import annotations

import json as _json
from collections.abc import Mapping
from typing import Any

from runs_app.llm.calls import CallRequest, RequestBody
from runs_app.llm.http_transport import Exchange
from runs_app.llm.keys import redact_body


class RequestCaptured(Exception):
    """Raised instead of sending the request."""


class CapturingTransport(Exchange):
    """A transport that captures litellm's request instead of sending it."""

    captured: RequestBody | None = None

    async def _send(self, url: str, data: Any, json: Any, params: Any, headers: Any) -> None:
        body = json if json is not None else _json.loads(data)
        self.captured = RequestBody(body, _keep_api_headers(headers or {}))
        raise RequestCaptured


def _keep_api_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return only the API's own headers, such as `anthropic-version` and `anthropic-beta`."""
    return {name.lower(): value for name, value in headers.items() if name.lower().startswith("anthropic-")}


class ReplayTransport(Exchange):
    """A transport that returns a reply from a batch as if it had just arrived."""

    def __init__(self, request: CallRequest, key: str, status: int, body: bytes) -> None:
        super().__init__(request, key)
        self._reply = status, body

    async def _send(self, url: str, data: Any, json: Any, params: Any, headers: Any) -> None:
        self.status, body = self._reply
        self.body = redact_body(body, self.key)
        self.headers = {"content-type": "application/json"}
