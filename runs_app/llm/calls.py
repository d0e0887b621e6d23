"""Calls to models: requests, replies and failures. Pure: no web, no database, no provider's library."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

from runs_app.pricing.costs import Prices, Usage

LOST = "worker_lost"  # The error class of a call whose worker went silent.
SILENT = "Its worker went silent."

CostSource = Literal["free", "price list", "litellm", "provider", "unknown"]


class ImageURL(str):
    """A data URL of an image in base64, which JSON writes without escapes."""

    __slots__ = ()

    @classmethod
    def from_data(cls, data: bytes, content_type: str) -> ImageURL:
        return cls(f"data:{content_type};base64,{base64.b64encode(data).decode('ascii')}")


class Kind(StrEnum):
    """The effect of a failure on its trial."""

    TRANSIENT = "transient"  # wait and retry; this uses one of the trial's attempts
    PERMANENT = "permanent"  # the same request would fail again
    ENDPOINT = "endpoint"  # slow the endpoint down, and release the trial without counting the attempt


class ErrorClass(StrEnum):
    """The cause of a failed call."""

    RATE_LIMITED = "rate_limited"
    QUOTA_EXHAUSTED = "quota_exhausted"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    CONNECTION = "connection"  # the connection broke, so the provider may have billed the call
    UNREACHABLE = "unreachable"  # no connection was made, and nothing was sent
    MALFORMED_REPLY = "malformed_reply"
    SOFT_FAILURE = "soft_failure"  # status 200 whose body reports an error
    EMPTY_ANSWER = "empty_answer"  # a blank answer, if the design reruns them
    UNREADABLE_ANSWER = "unreadable_answer"  # an answer without a rating, if the design reruns them
    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    PAYMENT_REQUIRED = "payment_required"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    UNPROCESSABLE = "unprocessable"
    CONTENT_REFUSED = "content_refused"
    CONTEXT_TOO_LONG = "context_too_long"
    RESPONSE_FORMAT_UNSUPPORTED = "response_format_unsupported"  # the call is repeated without a schema
    DUPLICATE_IN_FLIGHT = "duplicate_in_flight"  # not sent: the trial waits for the answer to an equal request
    NOT_ALLOWED = "not_allowed"  # this program refused to send the request
    MISSING_KEY = "missing_key"
    BATCH_EXPIRED = "batch_expired"  # its batch ended before the provider made this call
    UNRENDERABLE = "unrenderable"  # the prompt and the item do not make a valid request
    INTERNAL_ERROR = "internal_error"  # a fault of this program

    @property
    def kind(self) -> Kind:
        if self in _ENDPOINT_CLASSES:
            return Kind.ENDPOINT
        return Kind.TRANSIENT if self in _TRANSIENT_CLASSES else Kind.PERMANENT


_ENDPOINT_CLASSES = frozenset(
    {ErrorClass.RATE_LIMITED, ErrorClass.QUOTA_EXHAUSTED, ErrorClass.OVERLOADED, ErrorClass.UNREACHABLE}
)
_TRANSIENT_CLASSES = frozenset(
    {
        ErrorClass.SERVER_ERROR,
        ErrorClass.TIMEOUT,
        ErrorClass.CONNECTION,
        ErrorClass.MALFORMED_REPLY,
        ErrorClass.SOFT_FAILURE,
        ErrorClass.EMPTY_ANSWER,
        ErrorClass.UNREADABLE_ANSWER,
        ErrorClass.RESPONSE_FORMAT_UNSUPPORTED,
        ErrorClass.DUPLICATE_IN_FLIGHT,
        ErrorClass.BATCH_EXPIRED,
        ErrorClass.INTERNAL_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class Remaining:
    """The remaining number of requests or tokens, valid until the rate resets in `resets_in_s` seconds."""

    n: int
    resets_in_s: float


@dataclass(frozen=True, slots=True)
class Allowance:
    """The remaining requests and tokens, None if the provider does not state them."""

    requests: Remaining | None = None
    tokens: Remaining | None = None


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call to make. `messages` have the form of OpenAI's chat API, with images as data URLs in image_url parts.

    `runs_app.llm.parameters` lists the allowed `parameters`. `prices` are the prices set by hand on the model, in US
    dollars per million tokens. `max_output_tokens` is the model's own limit of an answer. `allowed_host` is a host that
    an operator allowed for this endpoint, in addition to those of the site.
    """

    provider: str
    model: str
    base_url: str | None
    key_env: str | None
    messages: list[dict[str, Any]]
    parameters: dict[str, Any] = field(default_factory=dict)
    response_format: dict[str, Any] | None = None
    timeout_s: float = 60.0
    is_free: bool = False
    prices: Prices | None = None
    max_output_tokens: int | None = None
    allowed_host: str = ""


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The JSON body of a call, and its headers without key and content type."""

    body: dict[str, Any]
    headers: dict[str, str]


# The fields of a reply that trials and attempts store in columns of the same name.
REPLY_FIELDS = (
    "finish_reason",
    "response_id",
    "served_model",
    "served_provider",
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cost_usd",
    "latency_ms",
)


@dataclass(frozen=True, slots=True)
class CallReply:
    """A model's reply. Times are in milliseconds. Tokens are None if the provider does not state them.

    `reasoning` holds the thinking that the provider or a <think> block separates from `text`. `raw_text` is the text as
    received; None for a reused answer whose raw response was removed, with `raw_sha256` as its hash. Input tokens
    include cached tokens, output tokens include reasoning. `list_usd` is the cost without the provider's cache, None if
    no list has a price. `stated_usd` is the cost that the provider states. `allowance` holds the rates that the
    provider says are left.
    """

    text: str
    raw_text: str | None
    reasoning: str
    finish_reason: str
    refused: bool
    response_id: str
    served_model: str
    served_provider: str
    input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cost_usd: Decimal | None
    cost_source: CostSource
    latency_ms: int
    trace_id: str
    list_usd: Decimal | None = None
    stated_usd: Decimal | None = None
    allowance: Allowance | None = None
    raw_sha256: str = ""

    @property
    def truncated(self) -> bool:
        """Return whether the answer reached its token limit."""
        return self.finish_reason == "length"


class CallFailure(Exception):
    """A failed call. `message` has at most 500 characters, and contains no key and no query of a URL.

    `was_sent` is false only if the provider certainly never received the request. `usage` and `cost_usd` are the
    amounts that the provider billed nevertheless, None if its reply does not state them.
    """

    def __init__(
        self,
        error_class: ErrorClass,
        message: str,
        *,
        http_status: int | None = None,
        retry_after_s: float | None = None,
        latency_ms: int | None = None,
        trace_id: str = "",
        was_sent: bool = True,
        served_provider: str = "",
        allowance: Allowance | None = None,
    ) -> None:
        super().__init__(f"{error_class}: {message}")
        self.error_class = error_class
        self.message = message
        self.http_status = http_status
        self.retry_after_s = retry_after_s
        self.latency_ms = latency_ms
        self.trace_id = trace_id
        self.was_sent = was_sent
        self.served_provider = served_provider
        self.allowance = allowance
        self.usage: Usage | None = None
        self.cost_usd: Decimal | None = None

    @property
    def kind(self) -> Kind:
        return self.error_class.kind
