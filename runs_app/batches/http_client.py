"""An HTTP client for batch APIs: an allowed address, an explicit key, and each request is sent once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from django.conf import settings

from runs_app.llm import failures
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.llm.http_transport import MAX_REPLY_BYTES, get_session, read_bounded
from runs_app.llm.keys import list_secrets, redact_body
from runs_app.llm.url_allowlist import find_url_problem

REQUEST_S = 60.0
UPLOAD_S = 600.0  # Enough for a file of 200 MB over a slow connection.
SILENCE_S = 60.0  # A streamed reply may take long, but no pause in it may.


@dataclass(frozen=True, slots=True)
class ApiClient:
    """The address of a provider's API, with its key and headers, and a host that an operator allowed for it."""

    url: str
    key: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    allowed_host: str = ""

    async def get(self, path: str) -> dict[str, Any]:
        return await self._send("GET", path, REQUEST_S)

    async def post(self, path: str, *, json: Any = None, data: Any = None, **headers: str) -> dict[str, Any]:
        """Send a POST request. `data` is a form or an open file, which gets a longer time-out."""
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._send("POST", path, REQUEST_S if data is None else UPLOAD_S, extra, json=json, data=data)

    async def _send(
        self, method: str, path: str, seconds: float, headers: dict[str, str] | None = None, **body: Any
    ) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._request(method, path, timeout, headers or {}, **body) as reply:
                content = await read_bounded(reply)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise self._build_connection_failure(error) from None
        text = redact_body(content, list_secrets(self.key)).decode("utf-8", "replace")
        if reply.status >= 300:
            raise self._build_status_failure(reply, text)
        payload = failures.parse_json_object(text)
        if not payload:
            raise self._build_failure(ErrorClass.MALFORMED_REPLY, f"the reply cannot be read: {text}")
        return payload

    async def iter_lines(self, path: str) -> AsyncIterator[bytes]:
        """Yield the lines of a file as they arrive, each at most 16 MiB long."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_S, sock_read=SILENCE_S)
        try:
            async with self._request("GET", path, timeout, {}) as reply:
                if reply.status >= 300:
                    body = redact_body(await read_bounded(reply), list_secrets(self.key))
                    raise self._build_status_failure(reply, body.decode("utf-8", "replace"))
                async for line in _split_lines(reply.content.iter_any()):
                    yield redact_body(line, list_secrets(self.key))
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise self._build_connection_failure(error) from None

    def _request(
        self, method: str, path: str, timeout: aiohttp.ClientTimeout, headers: dict[str, str], **body: Any
    ) -> Any:
        url = f"{self.url}{path}"
        if problem := find_url_problem(url, [*settings.LLM_ALLOWED_HOSTS, self.allowed_host]):
            raise CallFailure(ErrorClass.NOT_ALLOWED, problem, was_sent=False)
        content = {name: value for name, value in body.items() if value is not None}
        return get_session().request(
            method, url, headers=self.headers | headers, timeout=timeout, allow_redirects=False, **content
        )

    def _build_status_failure(self, reply: aiohttp.ClientResponse, text: str) -> CallFailure:
        headers = {name.lower(): value for name, value in reply.headers.items()}
        message = failures.read_message(text) or f"status {reply.status} without a message"
        return self._build_failure(
            failures.classify(reply.status, text),
            message,
            http_status=reply.status,
            retry_after_s=failures.read_retry_after_s(headers, text),
        )

    def _build_connection_failure(self, error: Exception) -> CallFailure:
        """Return the failure if no complete reply arrived. The provider may or may not have executed the request."""
        was_sent = not isinstance(error, aiohttp.ClientConnectorError)
        kind = ErrorClass.TIMEOUT if isinstance(error, TimeoutError) else ErrorClass.CONNECTION
        return self._build_failure(kind, f"{type(error).__name__}: {error}", was_sent=was_sent)

    def _build_failure(self, kind: ErrorClass, message: str, **circumstances: Any) -> CallFailure:
        return CallFailure(kind, failures.clean_message(message, (*list_secrets(), self.key)), **circumstances)


async def _split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > MAX_REPLY_BYTES:
            raise ValueError(f"a line is longer than {MAX_REPLY_BYTES // 2**20} MB")
    if rest.strip():
        yield rest


def require_id(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the object that the provider created. Raise CallFailure if it has no id."""
    if not isinstance(payload.get("id"), str) or not payload["id"]:
        raise CallFailure(ErrorClass.MALFORMED_REPLY, "the provider's reply has no id")
    return payload


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line, or an empty object, because an unreadable line counts as missing."""
    try:
        payload = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def parse_counts(value: Any) -> dict[str, int]:
    """Return the counts in a value of any type, by name."""
    counts = value.items() if isinstance(value, dict) else ()
    return {str(name)[:40]: n for name, n in counts if isinstance(n, int) and 0 <= n < 2**31}
