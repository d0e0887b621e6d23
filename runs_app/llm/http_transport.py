"""The HTTP exchange with a provider: one request, an allowed address, a time limit and a bounded reply."""

from __future__ import annotations

import asyncio
import json as _json
import os
import weakref
from collections.abc import Mapping
from typing import Any, NoReturn

import aiohttp
from django.conf import settings
from yarl import URL

from runs_app.llm import failures
from runs_app.llm.calls import CallFailure, CallRequest, ErrorClass
from runs_app.llm.keys import KEYLESS, list_secrets, redact, redact_body
from runs_app.llm.providers import PROVIDERS
from runs_app.llm.rate_limit_headers import parse_allowance
from runs_app.llm.stated_costs import Bill, read_bill
from runs_app.llm.url_allowlist import find_url_problem

MAX_REPLY_BYTES = 16 * 2**20
KEEP_ALIVE_S = 4.0  # shorter than the usual 5 s of servers, so that no request meets a connection that they close

# aiohttp has already decoded the body.
_DROPPED_HEADERS = frozenset({"content-encoding", "content-length", "transfer-encoding", "connection"})
_COUNTS = frozenset({"usage", "usageMetadata"})  # The fields in which providers state the tokens used.
_PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY")

_sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = weakref.WeakKeyDictionary()


class Exchange:
    """An HTTP client for one call, in place of litellm's own. It never sends a request twice.

    It keeps the reply and the failure, because litellm's adapters raise their own errors instead.
    """

    def __init__(self, request: CallRequest, key: str) -> None:
        self.request = request
        self.key = key
        self.trace_id = os.urandom(16).hex()
        self.was_used = self.was_sent = False
        self.status: int | None = None
        self.headers: Mapping[str, str] = {}
        self.body = b""
        self.failure: CallFailure | None = None
        self._sign = PROVIDERS[request.provider].sign if request.provider in PROVIDERS else None
        self._parsed: tuple[bytes, dict[str, Any], bool] = (b"", {}, False)

    def __del__(self) -> None:
        """Do nothing. litellm's client would close its connections here, but this client has none."""

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def payload(self) -> dict[str, Any]:
        """Return the JSON object of the reply's body, repaired as its provider declares, or an empty object."""
        return self._parse()[0]

    def _parse(self) -> tuple[dict[str, Any], bool]:
        """Return the payload, and whether it was repaired. Each body is parsed once."""
        if self._parsed[0] is not self.body:
            stated = payload = failures.parse_json_object(self.text)
            provider = PROVIDERS.get(self.request.provider)
            if payload and provider is not None and provider.repair_reply is not None:
                payload = provider.repair_reply(stated)
            self._parsed = (self.body, payload, payload != stated)
        return self._parsed[1:]

    @property
    def bill(self) -> Bill:
        """Return the tokens and the cost that the reply states."""
        return read_bill(self.payload, self.text)

    def build_body_without_counts(self) -> bytes | None:
        """Return an answer's body with empty token counts, or None if it has no counts or is not an answer.

        Some providers state counts that are not numbers. The answer is billed nevertheless, and a second call would
        cost again.
        """
        payload = self.payload
        names = _COUNTS & payload.keys()
        if self.failure is not None or self.status != 200 or not names:
            return None
        return _json.dumps(payload | {name: {} for name in names}).encode()

    async def post(
        self,
        url: str,
        data: Any = None,
        json: Any = None,
        params: Any = None,
        headers: Any = None,
        timeout: Any = None,
        stream: bool = False,
        logging_obj: Any = None,
        files: Any = None,
        content: Any = None,
    ) -> Any:
        """Send the request and return the reply as an httpx.Response. Raise httpx's exception for an error status.

        The signature is that of litellm's client. The time-out is that of the request.
        """
        import httpx

        if stream:
            self._refuse("A call is one request.")
        await self.send(str(url), content if data is None else data, headers, json, params)
        payload, is_repaired = self._parse()
        response = httpx.Response(
            self.status or 0,
            headers={name: value for name, value in self.headers.items() if name not in _DROPPED_HEADERS},
            content=_json.dumps(payload).encode() if is_repaired else _replace_invalid_utf8(self.body),
            request=httpx.Request("POST", url),
        )
        response.raise_for_status()
        return response

    async def send(self, url: str, data: Any, headers: Any, json: Any = None, params: Any = None) -> None:
        """Send the request and keep its reply, whatever its status. Refuse a second request, and a foreign address."""
        problem = find_url_problem(url, [*settings.LLM_ALLOWED_HOSTS, self.request.allowed_host])
        if problem is not None or self.was_used:
            self._refuse(problem or "A call is one request.")
        if self._sign is not None:
            body = data.encode() if isinstance(data, str) else data or _json.dumps(json).encode()
            try:
                headers, data, json = self._sign(url, body, headers, self.key), body, None
            except ValueError as error:
                self._refuse(str(error), ErrorClass.UNAUTHORIZED)
        self.was_used = self.was_sent = True
        try:
            await self._send(url, data, json, params, headers)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            self.failure = self._build_send_failure(error)
            raise self.failure from None

    def _refuse(self, problem: str, error_class: ErrorClass = ErrorClass.NOT_ALLOWED) -> NoReturn:
        self.failure = self.build_failure(error_class, problem)
        raise self.failure

    async def _send(self, url: str, data: Any, json: Any, params: Any, headers: Any) -> None:
        # A signature covers the address as it is written, so it is sent as it is.
        address = URL(url, encoded=self._sign is not None)
        timeout = aiohttp.ClientTimeout(total=self.request.timeout_s)
        async with get_session().post(
            address, data=data, json=json, params=params, headers=headers, timeout=timeout, allow_redirects=False
        ) as reply:
            secrets = list_secrets(self.key)
            self.headers = {name.lower(): redact(value, secrets) for name, value in reply.headers.items()}
            request_id = self.headers.get("x-request-id") or self.headers.get("request-id")
            self.trace_id = failures.replace_unstorable(request_id)[:64] if request_id else self.trace_id
            await self._receive(reply, secrets)

    async def _receive(self, reply: aiohttp.ClientResponse, secrets: list[str]) -> None:
        """Keep the status and the body. An exchange that passes its reply on does so here."""
        body = await read_bounded(reply)
        self.status, self.body = reply.status, redact_body(body, secrets)

    def _build_send_failure(self, error: Exception) -> CallFailure:
        """Return the failure for an error that occurred before the whole reply arrived."""
        if isinstance(error, TimeoutError):
            return self.build_failure(ErrorClass.TIMEOUT, f"no reply within {self.request.timeout_s:g} s")
        if isinstance(error, ReplyTooLong):
            return self.build_failure(ErrorClass.MALFORMED_REPLY, str(error))
        if isinstance(error, aiohttp.ClientConnectorError):
            self.was_sent = False
            return self.build_failure(ErrorClass.UNREACHABLE, f"{type(error).__name__}: {error}")
        is_connection = isinstance(error, aiohttp.ClientError | OSError) and not isinstance(error, aiohttp.InvalidURL)
        return self.build_failure(
            ErrorClass.CONNECTION if is_connection else ErrorClass.BAD_REQUEST, f"{type(error).__name__}: {error}"
        )

    def get_failure(self, error: Exception) -> CallFailure:
        """Return the failure behind an error that litellm raised."""
        if self.failure is not None:
            return self.failure
        if self.status is None:  # litellm could not make a request
            message = str(getattr(error, "message", error)).removeprefix(f"litellm.{type(error).__name__}: ")
            message = message.partition(" To drop these")[0] or type(error).__name__
            return self.build_failure(ErrorClass.BAD_REQUEST, message)
        if self.status >= 300:
            return self._build_classified_failure(self.status, self.text)
        reported = failures.find_reported_error(self.payload)
        if reported is None:
            return self.build_failure(ErrorClass.MALFORMED_REPLY, f"the reply cannot be read: {self.text}")
        return self._build_classified_failure(*reported)

    def _build_classified_failure(self, status: int | None, body: str) -> CallFailure:
        has_format = self.request.response_format is not None
        error_class = (
            failures.classify_reported(body) if status is None else failures.classify(status, body, has_format)
        )
        message = failures.read_message(body) or f"status {self.status} without a message"
        return self.build_failure(error_class, message, failures.read_retry_after_s(self.headers, body))

    def build_failure(self, error_class: ErrorClass, message: str, retry_after_s: float | None = None) -> CallFailure:
        """Return a failure with the part of its message that may be stored."""
        own_key = (self.key,) if self.key != KEYLESS else ()
        message = failures.clean_message(message, (*list_secrets(), *own_key))
        return CallFailure(
            error_class,
            message,
            http_status=self.status,
            retry_after_s=retry_after_s,
            was_sent=self.was_sent,
            served_provider=failures.read_provider(self.payload)[:80],
            allowance=parse_allowance(self.headers),
        )


async def close_session() -> None:
    """Close the connections of the running loop."""
    session = _sessions.pop(asyncio.get_running_loop(), None)
    if session is not None:
        await session.close()


def get_session() -> aiohttp.ClientSession:
    """Return the running loop's session. The connector has no limit, because the engine limits the calls in flight."""
    loop = asyncio.get_running_loop()
    session = _sessions.get(loop)
    if session is None or session.closed:
        session = _sessions[loop] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=300),
            trust_env=any(os.environ.get(name) for name in _PROXY_VARIABLES),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "evalsite"},
        )
    return session


def _replace_invalid_utf8(body: bytes) -> bytes:
    """Return the body with invalid bytes replaced. A single invalid byte must not lose a paid answer."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return body.decode("utf-8", "replace").encode()
    return body


class ReplyTooLong(ValueError):
    """A reply longer than MAX_REPLY_BYTES."""


async def read_bounded(reply: aiohttp.ClientResponse) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in reply.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_REPLY_BYTES:
            raise ReplyTooLong(f"the reply is longer than {MAX_REPLY_BYTES // 2**20} MB")
    return b"".join(chunks)
