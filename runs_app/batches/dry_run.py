"""A call without its sending: what would be sent, and the reading of a reply that came another way."""

from __future__ import annotations

import json as _json
from collections.abc import Mapping
from typing import Any

from runs_app.llm.calls import CallRequest, Shaped
from runs_app.llm.http_transport import Exchange
from runs_app.llm.keys import redact_body


class RequestCaptured(Exception):
    """Raised in place of sending."""


class CapturingTransport(Exchange):
    """Keeps the request that litellm made instead of sending it."""

    shaped: Shaped | None = None

    async def _send(self, url: str, data: Any, json: Any, params: Any, headers: Any) -> None:
        body = json if json is not None else _json.loads(data)
        self.shaped = Shaped(body, _of_the_api(headers or {}))
        raise RequestCaptured


def _of_the_api(headers: Mapping[str, str]) -> dict[str, str]:
    """Such as `anthropic-version`, and `anthropic-beta` where a request needs a feature by name."""
    return {name.lower(): value for name, value in headers.items() if name.lower().startswith("anthropic-")}


class ReplayTransport(Exchange):
    """Reads a reply that came in a batch as if it had just been answered."""

    def __init__(self, request: CallRequest, key: str, status: int, body: bytes) -> None:
        super().__init__(request, key)
        self._came = status, body

    async def _send(self, url: str, data: Any, json: Any, params: Any, headers: Any) -> None:
        self.status, body = self._came
        self.body = redact_body(body, self.key)
        self.headers = {"content-type": "application/json"}
