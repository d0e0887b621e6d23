"""Access tokens: short-lived keys that a provider's token address gives for a stored key (OAuth 2.0, RFC 6749)."""

from __future__ import annotations

import asyncio
import hashlib
import time
import weakref

import aiohttp
from django.conf import settings

from runs_app.llm import failures
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.llm.http_transport import get_session, read_bounded
from runs_app.llm.keys import KEYLESS, list_secrets, redact_body
from runs_app.llm.providers.base import Grant, Provider
from runs_app.llm.url_allowlist import find_url_problem

TIMEOUT_S = 30.0
RENEWED_BEFORE_S = 300.0  # A call may last minutes.
DEFAULT_LIFETIME_S = 3600.0

_tokens: dict[str, tuple[str, float]] = {}  # By the provider and the hash of its key: a token, and when to renew it.
_locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()


async def get_access_key(provider: Provider, key: str, allowed_host: str = "") -> str:
    """Return the key to send with a call: the stored key itself, or the access token that it is exchanged for.

    A token is kept until five minutes before its end. Raise CallFailure if there is none.
    """
    if provider.build_grant is None or key == KEYLESS:
        return key
    name = f"{provider.name}:{hashlib.sha256(key.encode()).hexdigest()}"
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        token, renewed_at = _tokens.get(name, ("", 0.0))
        if time.time() < renewed_at:
            return token
        try:
            grant = provider.build_grant(key, time.time())
        except ValueError as problem:
            raise CallFailure(ErrorClass.UNAUTHORIZED, f"{provider.label}: {problem}", was_sent=False) from None
        if grant is None:
            return key
        token, lifetime_s = await _request_token(provider, grant, key, allowed_host)
        _tokens[name] = token, time.time() + lifetime_s - RENEWED_BEFORE_S
        return token


async def _request_token(provider: Provider, grant: Grant, key: str, allowed_host: str) -> tuple[str, float]:
    """Return a token and its lifetime in seconds. Raise CallFailure; no call was made, so none is billed."""
    if problem := find_url_problem(grant.url, [*settings.LLM_ALLOWED_HOSTS, allowed_host]):
        raise CallFailure(ErrorClass.NOT_ALLOWED, f"the token's address: {problem}", was_sent=False)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with get_session().post(grant.url, data=grant.form, timeout=timeout, allow_redirects=False) as reply:
            body = redact_body(await read_bounded(reply), list_secrets(key, grant.form.get("assertion", "")))
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        message = f"no access token from {provider.label}: {type(error).__name__}"
        raise CallFailure(ErrorClass.UNREACHABLE, message, was_sent=False) from None
    payload = failures.parse_json_object(body.decode("utf-8", "replace"))
    token, lifetime_s = payload.get("access_token"), payload.get("expires_in", DEFAULT_LIFETIME_S)
    if reply.status == 200 and isinstance(token, str) and token and isinstance(lifetime_s, int | float):
        return token, float(lifetime_s)
    stated = payload.get("error_description") or payload.get("error") or f"status {reply.status}"
    is_outage = reply.status == 429 or reply.status >= 500
    error_class = ErrorClass.OVERLOADED if is_outage else ErrorClass.UNAUTHORIZED
    message = failures.clean_message(f"{provider.label} gave no access token, and says: {stated}", ())
    raise CallFailure(error_class, message, http_status=reply.status, was_sent=False)
