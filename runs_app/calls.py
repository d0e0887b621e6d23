"""What goes through the one door to models, and what comes back. Pure: no library of any provider is known here."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from runs_app.costs import Prices

Kind = Literal["transient", "permanent", "endpoint"]
CostSource = Literal["price list", "litellm", "provider", "free", "unknown"]

# Every class that a failed call can have, and what it means for the trial: transient ones wait and are tried again,
# permanent ones never are, and those of the endpoint are its own state, which no trial pays for.
KIND_OF: dict[str, Kind] = {
    "rate_limited": "endpoint",
    "overloaded": "endpoint",
    "server_error": "transient",
    "timeout": "transient",
    "connection": "transient",
    "malformed_reply": "transient",
    "bad_request": "permanent",
    "response_format_unsupported": "permanent",
    "content_refused": "permanent",
    "unauthorized": "permanent",
    "forbidden": "permanent",
    "not_found": "permanent",
    "unprocessable": "permanent",
    "not_allowed": "permanent",
    "missing_key": "permanent",
    "unrenderable": "permanent",
}


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One chat completion to ask for. Messages are in OpenAI's chat form, images in them as data URLs."""

    provider: str
    model: str
    base_url: str | None
    key_env: str | None
    messages: list[dict[str, Any]]
    parameters: dict[str, Any]
    response_format: dict[str, Any] | None
    timeout_s: float
    is_free: bool
    prices: Prices | None


@dataclass(frozen=True, slots=True)
class CallReply:
    """An answer. Tokens that the provider did not report are None, and so is a cost that cannot be known."""

    text: str
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


class CallFailure(Exception):
    """A call that gave no answer. `message` holds no key and no address with a secret, at most 500 characters."""

    def __init__(
        self,
        error_class: str,
        message: str,
        *,
        http_status: int | None = None,
        retry_after_s: float | None = None,
        latency_ms: int = 0,
    ) -> None:
        super().__init__(f"{error_class}: {message}")
        self.error_class = error_class
        self.kind: Kind = KIND_OF[error_class]
        self.message = message[:500]
        self.http_status = http_status
        self.retry_after_s = retry_after_s
        self.latency_ms = latency_ms
