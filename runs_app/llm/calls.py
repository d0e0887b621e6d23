"""A call to a model: its request, its reply and its failures. Pure: no web, no database, no provider's library."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

from runs_app.llm.rate_limit_headers import Allowance
from runs_app.pricing.costs import Prices, Usage

LOST = "worker_lost"  # The error class of a call whose worker went silent.
SILENT = "Its worker went silent."

CostSource = Literal["free", "price list", "litellm", "provider", "unknown"]


class Kind(StrEnum):
    """The meaning of a failure for another try."""

    TRANSIENT = "transient"  # wait and try the trial again, which uses one of its attempts
    PERMANENT = "permanent"  # the same request would fail again
    # the endpoint's state, not the trial's: slow down, give the trial back without counting the attempt
    ENDPOINT = "endpoint"


class ErrorClass(StrEnum):
    """One word for the cause of a failed call."""

    RATE_LIMITED = "rate_limited"
    QUOTA_EXHAUSTED = "quota_exhausted"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    MALFORMED_REPLY = "malformed_reply"
    SOFT_FAILURE = "soft_failure"  # status 200 whose body reports an error
    EMPTY_ANSWER = "empty_answer"  # a blank answer, if the design reruns these
    UNREADABLE_ANSWER = "unreadable_answer"  # an answer without a rating, if the design reruns these
    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    PAYMENT_REQUIRED = "payment_required"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    UNPROCESSABLE = "unprocessable"
    CONTENT_REFUSED = "content_refused"
    CONTEXT_TOO_LONG = "context_too_long"
    RESPONSE_FORMAT_UNSUPPORTED = "response_format_unsupported"  # the same is asked again without a schema
    BEING_ASKED = "being_asked"  # another call is asking the same now and its answer is awaited, so no call was made
    NOT_ALLOWED = "not_allowed"  # refused here, before anything was sent
    MISSING_KEY = "missing_key"
    BATCH_EXPIRED = "batch_expired"  # its batch ended before this call was made
    UNRENDERABLE = "unrenderable"  # the prompt and the item do not make a valid request
    INTERNAL_ERROR = "internal_error"  # a fault of this program

    @property
    def kind(self) -> Kind:
        if self in _ENDPOINT:
            return Kind.ENDPOINT
        return Kind.TRANSIENT if self in _TRANSIENT else Kind.PERMANENT


_ENDPOINT = frozenset({ErrorClass.RATE_LIMITED, ErrorClass.QUOTA_EXHAUSTED, ErrorClass.OVERLOADED})
_TRANSIENT = frozenset(
    {
        ErrorClass.SERVER_ERROR,
        ErrorClass.TIMEOUT,
        ErrorClass.CONNECTION,
        ErrorClass.MALFORMED_REPLY,
        ErrorClass.SOFT_FAILURE,
        ErrorClass.EMPTY_ANSWER,
        ErrorClass.UNREADABLE_ANSWER,
        ErrorClass.RESPONSE_FORMAT_UNSUPPORTED,
        ErrorClass.BEING_ASKED,
        ErrorClass.BATCH_EXPIRED,
        ErrorClass.INTERNAL_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One call to make. `messages` have the form of OpenAI's chat API, with images as data URLs in image_url parts.

    `parameters` are those that `runs_app.llm.parameters` allows. `prices` are those set by hand on the model, in US
    dollars per million tokens. `max_output_tokens` is the model's own limit of an answer.
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


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The JSON body that a call would send, and its headers beyond key and content type."""

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

    Thinking that the provider or a <think> block separates is in `reasoning`, not in `text`. `raw_text` is the text as
    received. Input tokens include cached ones, output tokens include reasoning. `list_usd` is the cost without the
    provider's cache, None if no list has a price. `stated_usd` is the cost that the provider states. `allowance` holds
    the rates that the provider says are left.
    """

    text: str
    raw_text: str
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

    @property
    def truncated(self) -> bool:
        """Return whether the model ran out of tokens before it had finished."""
        return self.finish_reason == "length"


class CallFailure(Exception):
    """A call without a reply. `message` holds no key, no query of a URL, and at most 500 characters.

    `was_sent` is false only if the provider certainly never got the request. `usage` and `cost_usd` are the amounts
    that the provider billed nevertheless, None if its reply does not state them.
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
