"""The declaration of a provider: everything that the site needs to know about one API. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from runs_app.llm.calls import ErrorClass

# Parameters that LiteLLM's adapters translate into a provider's own form.
TRANSLATED = frozenset(
    {"temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "reasoning_effort", "stop", "logit_bias"}
    | {"presence_penalty", "frequency_penalty", "thinking", "verbosity", "service_tier"}
)
COMMON_PARAMETERS = TRANSLATED | {"top_k"}
# Further parameters that servers with OpenAI's API take, as vLLM, and routers.
SERVER_PARAMETERS = frozenset(
    {"min_p", "top_a", "repetition_penalty", "length_penalty", "min_tokens", "ignore_eos", "skip_special_tokens"}
    | {"include_reasoning", "enable_thinking", "thinking_budget", "thinking_token_budget", "chat_template_kwargs"}
    | {"reasoning", "provider"}
)

Payload = dict[str, Any]


def build_bearer_headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


@dataclass(frozen=True, slots=True)
class Grant:
    """A form that its address exchanges for an access token (OAuth 2.0, RFC 6749, section 4.5)."""

    url: str
    form: dict[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider's API, and how it differs from OpenAI's.

    `name` is stored with endpoints and conditions, and is the name in LiteLLM's price list. `adapter` is LiteLLM's
    adapter that builds requests and reads replies. Providers with OpenAI's API share that of OpenAI: adapters of
    their own change requests unasked (a schema becomes a tool, a URL of an image gets a suffix), and rely on optional
    fields of replies.

    `default_url` is used if an endpoint has no base URL. Keys are sent only to its host, to `hosts`, and to hosts that
    an operator allows. `key_name` is the usual environment variable of the key.

    `parameters` are the sampling parameters that may be sent. `native` are those that the adapter takes by the
    provider's own names. In OpenAI's form, all others go into the body unchanged, by their name in `renamed` if they
    have one. `defaults` are arguments that a call gets unless its sampler decides. `needs_output_limit` sends the
    model's own limit of an answer if the sampler sets none.

    `statuses` are HTTP statuses with a meaning of their own. `request_rates` and `token_rates` are pairs of headers:
    what is left, and when it resets. `repair_reply` turns a reply into the form that the adapter reads; what is stored
    as received stays as it was.

    `sign` returns the headers of a request with its key or signature, from the address, the bytes, the headers and the
    key. `build_grant` turns the stored key into the form that is exchanged for a token of an hour at `Grant.url`.

    `batch_api` is the class of its batches by dotted name, and `batch_label` its label. `models_path` and
    `models_headers` fetch its list of models. Without a path, it has no list.
    """

    name: str
    label: str
    adapter: str = "openai"
    default_url: str | None = None
    needs_url: bool = False
    hosts: frozenset[str] = frozenset()
    key_name: str = ""
    is_self_hosted: bool = False
    parameters: frozenset[str] = COMMON_PARAMETERS
    native: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    speaks_openai: bool = True
    checks_parameters: bool = False  # By the names of models, at the default address.
    get_defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    needs_output_limit: bool = False
    statuses: Mapping[int, ErrorClass] = field(default_factory=dict)
    request_rates: tuple[tuple[str, str], ...] = ()
    token_rates: tuple[tuple[str, str], ...] = ()
    repair_reply: Callable[[Payload], Payload] | None = None
    sign: Callable[[str, bytes, Mapping[str, str], str], dict[str, str]] | None = None
    build_grant: Callable[[str, float], Grant | None] | None = None
    batch_api: str = ""
    batch_label: str = ""
    models_path: str = "/models"
    models_headers: Callable[[str], dict[str, str]] = build_bearer_headers
    takes_cache_marks: bool = False
    takes_routes: bool = False
    family: str = ""  # If it serves only its own models.

    @property
    def all_hosts(self) -> frozenset[str]:
        """Return the hosts that are called without an operator's permission. A user's own machine is none of them."""
        host = urlsplit(self.default_url or "").hostname
        return self.hosts if host is None or self.is_self_hosted else self.hosts | {host}
