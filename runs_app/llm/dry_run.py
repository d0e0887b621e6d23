"""Transports that send nothing: one captures a request, the other replays a reply that has arrived."""

from __future__ import annotations

import json as _json
from typing import Any

from runs_app.llm.calls import CallRequest, RequestBody
from runs_app.llm.http_transport import Exchange
from runs_app.llm.keys import list_secrets, redact_body
from runs_app.llm.request_templates import ShapedRequest


class RequestCaptured(Exception):
    """Raised instead of sending the request."""


class CapturingTransport(Exchange):
    """A transport that captures litellm's request instead of sending it."""

    captured: ShapedRequest | None = None

    async def _send(self, url: str, data: Any, json: Any, params: Any, headers: Any) -> None:
        sent = dict(headers or {})
        if json is not None:  # As aiohttp sends it.
            data = _json.dumps(json)
            sent.setdefault("Content-Type", "application/json")
        if isinstance(data, str | bytes) and not params:
            self.captured = ShapedRequest(url, sent, data.encode() if isinstance(data, str) else data)
        raise RequestCaptured


def build_request_body(shaped: ShapedRequest) -> RequestBody:
    """Return the body, and only the API's own headers, such as `anthropic-version` and `anthropic-beta`."""
    headers = {name.lower(): value for name, value in shaped.headers.items() if name.lower().startswith("anthropic-")}
    return RequestBody(_json.loads(shaped.body), headers)


class ReplayTransport(Exchange):
    """A transport that returns a stored reply, as from a batch, as if it had just arrived."""

    def __init__(self, request: CallRequest, key: str, status: int, body: bytes) -> None:
        super().__init__(request, key)
        self._reply = status, body

    async def _send(self, url: str, data: Any, json: Any, params: Any, headers: Any) -> None:
        self.status, body = self._reply
        self.body = redact_body(body, list_secrets(self.key))
        self.headers = {"content-type": "application/json"}
