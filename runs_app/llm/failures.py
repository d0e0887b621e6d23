"""Providers' errors: their classes, and the parts of them that may be stored."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from pydantic_core import from_json

from runs_app.llm.calls import ErrorClass
from runs_app.llm.providers import PROVIDERS
from runs_app.llm.rate_limit_headers import parse_reply_time

MAX_MESSAGE = 500
MAX_READ = 20_000  # The longest text that a message is made from, forty times as long as the message.
MAX_RETRY_AFTER_S = 86_400.0

_BY_STATUS: dict[int, ErrorClass] = {
    401: ErrorClass.UNAUTHORIZED,
    402: ErrorClass.PAYMENT_REQUIRED,
    403: ErrorClass.FORBIDDEN,
    404: ErrorClass.NOT_FOUND,
    408: ErrorClass.TIMEOUT,
    409: ErrorClass.SERVER_ERROR,
    422: ErrorClass.UNPROCESSABLE,
    425: ErrorClass.SERVER_ERROR,
    429: ErrorClass.RATE_LIMITED,
    503: ErrorClass.OVERLOADED,
    504: ErrorClass.TIMEOUT,
    524: ErrorClass.TIMEOUT,  # Cloudflare: the origin server did not answer in time
    # Those of all providers, because routers and servers with OpenAI's API pass on the statuses of their backends.
    **{status: error_class for provider in PROVIDERS.values() for status, error_class in provider.statuses.items()},
}

_QUOTA = re.compile(r"insufficient_quota", re.IGNORECASE)
_CREDIT = re.compile(r"credit balance|insufficient (?:credits|balance|funds)", re.IGNORECASE)
_OVERLOAD = re.compile(r"\boverloaded(?:_error)?\b", re.IGNORECASE)
_CONTENT = re.compile(
    r"content[_ ]?(?:policy|filter|management|moderation)|data_?inspection|inappropriate content|"
    r"safety (?:system|filter|policy|settings)|\bflagged\b|responsible_?ai",
    re.IGNORECASE,
)
_CONTEXT = re.compile(r"context[_ ](?:length|window)|maximum context|(?:prompt|input) is too long", re.IGNORECASE)
_FORMAT = re.compile(
    r"response_?format|json_?schema|json_object|structured[_ ]?output|response_?schema|\bgrammar\b|"
    r"output_(?:config\.)?format",
    re.IGNORECASE,
)

_SECRETS = re.compile(
    r"(?:bearer\s+|\bbasic\s+)[\w.~+/=-]{6,}|\b(?:sk|pk|rk|gsk|xai|hf|AIza)[-_][\w-]{6,}|\bAIza[\w-]{20,}",
    re.IGNORECASE,
)
_NAMED_SECRETS = re.compile(
    r"((?:api[-_]?key|access[-_]?token|token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,}]+", re.I
)
_URL = re.compile(r"(https?://)(?:[^\s/@\"']+@)?([^\s?#\"']+)(?:[?#][^\s\"']*)?", re.IGNORECASE)


def classify(status: int, body: str, has_format: bool = False) -> ErrorClass:
    """Return the class of an error status with this body. `has_format`: the request had a response format."""
    if status == 429:
        return ErrorClass.QUOTA_EXHAUSTED if _QUOTA.search(body) else ErrorClass.RATE_LIMITED
    if status not in (401, 404) and _CONTENT.search(body):
        return ErrorClass.CONTENT_REFUSED
    if has_format and status in (400, 404, 422, 500, 501) and _FORMAT.search(body):
        return ErrorClass.RESPONSE_FORMAT_UNSUPPORTED
    if status == 400 and _CREDIT.search(body):
        return ErrorClass.PAYMENT_REQUIRED
    if status in (400, 413, 422) and _CONTEXT.search(body):
        return ErrorClass.CONTEXT_TOO_LONG
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return ErrorClass.OVERLOADED if _OVERLOAD.search(body) else ErrorClass.SERVER_ERROR
    return ErrorClass.NOT_ALLOWED if 300 <= status < 400 else ErrorClass.BAD_REQUEST


def classify_reported(body: str) -> ErrorClass:
    """Return the class of an error that came with status 200 and without its own status."""
    return ErrorClass.CONTENT_REFUSED if _CONTENT.search(body) else ErrorClass.SOFT_FAILURE


def find_reported_error(payload: Mapping[str, Any]) -> tuple[int | None, str] | None:
    """Return the status and text of an error that a reply of status 200 reports, or None without an error.

    The status is None if the error has none.
    """
    for reported in (payload.get("error"), *_iter_choice_errors(payload)):
        if isinstance(reported, dict) and (reported.get("message") or reported.get("code") is not None):
            code = str(reported.get("code"))
            status = int(code) if re.fullmatch(r"[45]\d\d", code) else None
            return status, json.dumps(reported)
        if isinstance(reported, str) and reported:
            return None, reported
    return None


def _iter_choice_errors(payload: Mapping[str, Any]) -> Iterator[Any]:
    choices = payload.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict):
            yield choice.get("error")
            if choice.get("finish_reason") == "error":
                yield "the model stopped with an error"


def read_provider(payload: Mapping[str, Any]) -> str:
    """Return the provider that served the call, if a router names it in a reply or an error; else ""."""
    error = payload.get("error")
    metadata = error.get("metadata") if isinstance(error, dict) else None
    provider = payload.get("provider") or (metadata.get("provider_name") if isinstance(metadata, dict) else None)
    return replace_unstorable(provider) if isinstance(provider, str) else ""


def read_message(body: str) -> str:
    """Return the message of an error body in any common form, or the body itself."""
    payload = parse_json_object(body)
    error = payload.get("error", payload)
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return body
    metadata = error.get("metadata")
    upstream = metadata.get("raw") if isinstance(metadata, dict) else None
    parts = [error.get("message") or error.get("detail") or error.get("code"), upstream]
    texts = [part if isinstance(part, str) else _describe_fields(part) or json.dumps(part) for part in parts if part]
    return ": ".join(texts) or body


def _describe_fields(part: Any) -> str:
    """Return "field: problem" for each refused field that a server based on pydantic names, or an empty text."""
    entries = part.get("detail") if isinstance(part, dict) else part
    problems = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return "; ".join(
        f"{'.'.join(map(str, place[1:]))}: {entry['msg']}"
        for entry in problems
        if isinstance(place := entry.get("loc"), list) and isinstance(entry.get("msg"), str)
    )


def clean_message(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Return the text in one line of at most 500 characters, without keys, and without URLs' user names and queries."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "[key]")
    text = remove_key_patterns(_truncate(text))
    text = " ".join(replace_unstorable(text).split())
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


def remove_key_patterns(text: str) -> str:
    """Return the text without parts that look like a key, and without URLs' user names and queries."""
    text = _URL.sub(r"\1\2", text)
    return _NAMED_SECRETS.sub(r"\1[key]", _SECRETS.sub("[key]", text))


def _truncate(text: str) -> str:
    """Return the start of the text that a message is made from.

    The patterns take seconds for 10 MB, and block all other calls meanwhile. The cut is never inside a word, because
    half a key would not be recognized as a key.
    """
    return text if len(text) <= MAX_READ else (text[:MAX_READ].rsplit(None, 1) or [""])[0]


def replace_unstorable(text: str) -> str:
    """Return the text with NUL and lone surrogates, which PostgreSQL cannot hold, replaced by U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


def read_retry_after_s(headers: Mapping[str, str], body: str = "", now: datetime | None = None) -> float | None:
    """Return the seconds that the provider asks to wait, or None.

    They come from Retry-After, as seconds or a date, or from the delay in Google's error body.
    """
    milliseconds = _parse_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _clamp(milliseconds / 1000)
    header = headers.get("retry-after")
    seconds = _parse_number(header)
    if seconds is not None:
        return _clamp(seconds)
    if header:
        try:
            moment = parsedate_to_datetime(header)
        except (TypeError, ValueError):
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return _clamp((moment - (now or parse_reply_time(headers))).total_seconds())
    delay = re.search(r'"retryDelay"\s*:\s*"([\d.]+)s"', body)
    return _clamp(float(delay[1])) if delay and _parse_number(delay[1]) is not None else None


def _clamp(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)


def _parse_number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None


def parse_json_object(body: str) -> dict[str, Any]:
    """Return the JSON object in a body, the first object of a list, or an empty object.

    The first parser takes a third of the time. It refuses some texts that Python's reads, such as lone surrogates.
    """
    try:
        payload = from_json(body)
    except ValueError:
        try:
            payload = json.loads(body)
        except (ValueError, RecursionError):
            return {}
    payload = payload[0] if isinstance(payload, list) and payload else payload
    return payload if isinstance(payload, dict) else {}
