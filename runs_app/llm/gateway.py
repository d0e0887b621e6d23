"""The gateway to models: litellm builds requests and reads replies, and our own transport sends them.

litellm has each provider's form of a request and a reply, and its prices. Its wrapper around a call is not used: a
thread, logging, retries, and clients that send a request again. One call is one request, to an allowed address, with an
explicit key, within its time-out.

litellm shapes one request of a condition; templates fill in the texts of the others. A usual reply in OpenAI's form is
read without litellm. Both yield what litellm would, and all else is left to it.

litellm takes seconds to import, so it is imported at its first use. `warm_up` imports it ahead of time.
"""

from __future__ import annotations

import functools
import gc
import json as _json
import logging
import os
import time
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings

from runs_app.llm import call_observer, parameters
from runs_app.llm.access_tokens import get_access_key
from runs_app.llm.answers import ProviderAnswer, read_litellm_answer, read_openai_answer
from runs_app.llm.calls import CallFailure, CallReply, CallRequest, ErrorClass, RequestBody
from runs_app.llm.http_transport import Exchange, close_session
from runs_app.llm.keys import KEYLESS, find_name_problem, list_secrets, read_key, redact_body
from runs_app.llm.providers import PROVIDERS
from runs_app.llm.providers.base import TRANSLATED, Provider
from runs_app.llm.replies import add_bill, read_reply
from runs_app.llm.request_templates import RequestTemplates, ShapedRequest
from runs_app.llm.stated_costs import choose_larger
from runs_app.pricing.costs import Usage

__all__ = ["build_body", "call", "close_session", "read_batch_reply", "resolve_access", "warm_up"]


async def call(request: CallRequest) -> CallReply:
    """Make one call. Raise only CallFailure (and CancelledError when cancelled).

    Before an event loop ends, await `close_session()` to close its connections.
    """
    try:
        reply = await _make_call(request)
    except CallFailure as failure:
        _notify_observer(request, failure)
        raise
    _notify_observer(request, reply)
    return reply


def _notify_observer(request: CallRequest, outcome: call_observer.Outcome) -> None:
    if settings.CALL_OBSERVER:
        call_observer.get_observer_queue(settings.CALL_OBSERVER).put(request, outcome)


async def _make_call(request: CallRequest) -> CallReply:
    key = await get_access_key(_get_provider(request), _get_key(request), request.allowed_host)
    exchange = _get_exchange_class()(request, key)
    started = time.perf_counter()  # Not earlier: the first exchange of a process imports litellm, which takes seconds.
    try:
        answer = await _send_and_read(request, exchange)
        return read_reply(request, answer, exchange, _get_elapsed_ms(started), _get_listed_cost)
    except CallFailure as failure:
        raise _add_circumstances(add_bill(request, failure, exchange, _get_listed_cost), exchange, started) from None
    except Exception as error:  # noqa: BLE001 - any exception of a provider's adapter is a failed call
        billed = add_bill(request, exchange.get_failure(error), exchange, _get_listed_cost)
        raise _add_circumstances(billed, exchange, started) from None


async def _send_and_read(request: CallRequest, exchange: Exchange) -> ProviderAnswer | None:
    """Send the request and return the answer.

    In OpenAI's form, a template shapes the request and our own reader reads a usual reply; both yield what litellm
    would. All others are litellm's.
    """
    shaped = None
    if _get_provider(request).speaks_openai:
        shaped = await _templates.shape(request, exchange.key)
    if shaped is None:
        return await _complete(request, exchange)
    await exchange.send(shaped.url, shaped.body, shaped.headers)
    if not 200 <= (exchange.status or 0) < 300:
        raise exchange.get_failure(ValueError("an error status"))
    is_object = exchange.body.lstrip().startswith(b"{")  # `payload` may be the first object of a list.
    answer = read_openai_answer(exchange.payload) if is_object else None
    if answer is not None:
        return answer
    replay = _get_exchange_class(ReplayTransport)(request, exchange.key, exchange.status, exchange.body)
    return await _complete(request, replay)


async def _complete(request: CallRequest, exchange: Exchange) -> ProviderAnswer | None:
    """Let litellm make the call, and return the answer. If it cannot read the token counts, read it without them."""
    try:
        return read_litellm_answer(await _start_completion(request, exchange))
    except CallFailure:
        raise
    except Exception:
        body = exchange.build_body_without_counts()
        if body is None:
            raise
    replay = _get_exchange_class(ReplayTransport)(request, exchange.key, exchange.status, body)
    return read_litellm_answer(await _start_completion(request, replay))


def _add_circumstances(failure: CallFailure, exchange: Exchange, started: float) -> CallFailure:
    failure.latency_ms, failure.trace_id = _get_elapsed_ms(started), exchange.trace_id
    return failure


def _get_elapsed_ms(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


def warm_up() -> None:
    """Import litellm and the modules of its first call, then exclude its objects from garbage collection.

    Call this once in a worker before work starts. It takes seconds, but otherwise each collection walks all objects of
    litellm.
    """
    for provider in PROVIDERS:
        # Preparing a call imports the provider's adapter. The call is not made.
        request = CallRequest(provider, "warm-up", "http://127.0.0.1:9", None, [{"role": "user", "content": "."}])
        _start_completion(request, _get_exchange_class()(request, KEYLESS)).close()
    gc.collect()
    gc.freeze()


# litellm --------------------------------------------------------------------------------------------------------------


@functools.cache
def _import_litellm() -> Any:
    """Import litellm with its network look-ups, telemetry, callbacks, retries and logs switched off, and return it."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches its prices from the network
    os.environ["LITELLM_MODE"] = "PRODUCTION"  # else it loads a .env file of the current directory
    os.environ["EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER"] = "True"  # one handler for all, not OpenAI's own client
    import litellm

    litellm.telemetry = False
    litellm.num_retries = 0
    litellm.suppress_debug_info = True
    litellm.drop_params = False  # a parameter that a model does not accept is an error, and not silently dropped
    litellm.callbacks, litellm.success_callback, litellm.failure_callback, litellm.input_callback = [], [], [], []
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # its logs may quote keys
    return litellm


def _start_completion(request: CallRequest, exchange: Exchange) -> Any:
    """Return an awaitable that makes the call. With `acompletion=True`, litellm returns it without its own wrapper."""
    litellm = _import_litellm()
    log = litellm.Logging(
        model=request.model,
        messages=request.messages,
        stream=False,
        call_type="acompletion",
        start_time=datetime.now(),  # noqa: DTZ005 - litellm subtracts naive times
        litellm_call_id=exchange.trace_id,
        function_id=exchange.trace_id,
    )
    # The sampler's parameters for litellm. Only known names pass: litellm has control arguments, too.
    provider = _get_provider(request)
    settings_by_name = {name: value for name, value in request.parameters.items() if value is not None}
    if problem := parameters.find_problem(request.provider, settings_by_name):
        raise CallFailure(ErrorClass.NOT_ALLOWED, problem, was_sent=False)
    limits_output = parameters.limits_output(settings_by_name)
    if provider.needs_output_limit and request.max_output_tokens and not limits_output:
        settings_by_name["max_tokens"] = request.max_output_tokens
    supported = (TRANSLATED | provider.native) - provider.renamed.keys()
    arguments = {name: value for name, value in settings_by_name.items() if name in supported}
    extra = {
        provider.renamed.get(name, name): value for name, value in settings_by_name.items() if name not in supported
    }
    if extra:
        arguments["extra_body"] = extra
    if provider.get_defaults is not None:
        arguments = {**provider.get_defaults(settings_by_name), **arguments}
    if provider.speaks_openai and (request.base_url or not provider.checks_parameters):
        # litellm looks parameters up by the names of models, but such a server may serve any model.
        arguments["allowed_openai_params"] = sorted(TRANSLATED & arguments.keys())
    return litellm.completion(
        # litellm removes the first part, even of a model's own name.
        model=f"{provider.adapter}/{request.model}",
        api_base=_get_base_url(request),
        api_key=exchange.key,
        messages=request.messages,
        response_format=request.response_format,
        timeout=request.timeout_s,
        num_retries=0,
        client=exchange,
        acompletion=True,
        litellm_logging_obj=log,
        _skip_responses_api_bridge=True,  # the bridge would use its own client
        **arguments,
    )


def _get_provider(request: CallRequest) -> Provider:
    """Return the declaration of the request's provider. Raise CallFailure if it has none."""
    if request.provider not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise CallFailure(ErrorClass.NOT_ALLOWED, f"provider {request.provider!r} is not one of {known}")
    return PROVIDERS[request.provider]


def _get_base_url(request: CallRequest) -> str | None:
    """Return the endpoint's address or the provider's default. Without one, litellm would read the environment."""
    provider = _get_provider(request)
    url = request.base_url or provider.default_url
    if url is None:
        if provider.needs_url:
            raise CallFailure(ErrorClass.NOT_ALLOWED, f"an endpoint of {request.provider} needs a base URL")
        return None
    return url.rstrip("/")


def _get_key(request: CallRequest) -> str:
    """Return the endpoint's key, or a placeholder if it needs none. Otherwise litellm would read the environment."""
    if not request.key_env:
        return KEYLESS
    if problem := find_name_problem(request.key_env):
        raise CallFailure(ErrorClass.NOT_ALLOWED, f"key variable: {problem}", was_sent=False)
    key = read_key(request.key_env)
    if not key:
        raise CallFailure(ErrorClass.MISSING_KEY, f"the environment variable {request.key_env} is not set")
    return key


def _get_listed_cost(request: CallRequest, usage: Any) -> float | None:
    """Return the cost of these tokens in US dollars by litellm's price list, or None if the model is not listed."""
    # For a self-hosted model, litellm would ask the server.
    if _get_provider(request).is_self_hosted or not _is_listed(request.provider, request.model):
        return None
    litellm = _import_litellm()
    model = {"model": request.model, "custom_llm_provider": request.provider}
    if isinstance(usage, dict):
        usage = litellm.Usage(**usage)
    if isinstance(usage, Usage):
        tokens = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
        return float(sum(litellm.cost_per_token(**model, **tokens)))
    return float(sum(litellm.cost_per_token(**model, usage_object=usage)))


@functools.lru_cache(maxsize=4096)
def _is_listed(provider: str, model: str) -> bool:
    """Return whether litellm lists a price. The result is cached, because litellm is slow for unlisted models."""
    try:
        info = _import_litellm().get_model_info(model=model, custom_llm_provider=provider)
    except Exception:  # noqa: BLE001 - it raises a bare Exception for a model that is not listed
        return False
    return info.get("input_cost_per_token") is not None and info.get("output_cost_per_token") is not None


@functools.cache
def _get_exchange_class(kind: type[Exchange] = Exchange) -> Any:
    """Return the exchange class as a subclass of litellm's client, because litellm's handlers check for it."""
    _import_litellm()
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    return type(f"Litellm{kind.__name__}", (kind, AsyncHTTPHandler), {})


async def _shape(request: CallRequest, key: str) -> ShapedRequest | None:
    """Return the request that litellm would send, or None if it has another form. Raise CallFailure if it refuses."""
    transport: CapturingTransport = _get_exchange_class(CapturingTransport)(request, key)
    try:
        await _start_completion(request, transport)
    except CallFailure:
        raise
    except RequestCaptured:
        pass
    except Exception as error:  # noqa: BLE001 - adapters wrap RequestCaptured in their own errors
        if not transport.was_used:
            raise transport.get_failure(error) from None
    return transport.captured


_templates = RequestTemplates(_shape)


# Batches --------------------------------------------------------------------------------------------------------------


def resolve_access(request: CallRequest) -> tuple[str, str]:
    """Return the base URL and the key for this request. Raise CallFailure if one of them is missing."""
    url = _get_base_url(request)
    if url is None:
        raise CallFailure(ErrorClass.NOT_ALLOWED, f"{request.provider} has no single base URL")
    return url, _get_key(request)


async def build_body(request: CallRequest) -> RequestBody:
    """Return the body that `call` would send for this request. Raise CallFailure if it cannot be sent."""
    key = _get_key(request)
    shaped = await _templates.shape(request, key) or await _shape(request, key)
    if shaped is None:
        raise CallFailure(ErrorClass.INTERNAL_ERROR, "nothing would have been sent", was_sent=False)
    return build_request_body(shaped)


async def read_batch_reply(request: CallRequest, status: int, body: bytes, discount: Decimal) -> CallReply:
    """Return the reply to a request sent in a batch, at the batch's price. Raise CallFailure as `call` does.

    `discount` is the share of the price that a batch saves. It applies if litellm lists no batch prices.
    """
    replay: ReplayTransport = _get_exchange_class(ReplayTransport)(request, _get_key(request), status, body)
    try:
        reply = read_reply(request, await _complete(request, replay), replay, 0, _get_listed_cost)
    except CallFailure as failure:
        raise add_bill(request, failure, replay, _get_listed_cost, discount) from None
    except Exception as error:  # noqa: BLE001 - as in `call`
        raise add_bill(request, replay.get_failure(error), replay, _get_listed_cost, discount) from None
    # The reply at the batch's price. Its `list_usd` stays, so the ledger shows the difference as saved. A cost that the
    # provider states counts if it is larger.
    if reply.cost_source not in ("price list", "litellm"):
        return reply
    listed = _get_listed_batch_share(request, reply) if reply.cost_source == "litellm" else None
    share = 1 - discount if listed is None else listed
    cost = None if reply.cost_usd is None else reply.cost_usd * share
    return replace(reply, cost_usd=choose_larger(cost, reply.stated_usd))


def _get_listed_batch_share(request: CallRequest, reply: CallReply) -> Decimal | None:
    """Return the share of the regular price that these tokens cost in a batch by litellm's list, or None."""
    info = _import_litellm().get_model_info(model=request.model, custom_llm_provider=request.provider)
    kinds = ("input_cost_per_token", "output_cost_per_token")
    regular, batched = [info.get(kind) for kind in kinds], [info.get(f"{kind}_batches") for kind in kinds]
    tokens = (reply.input_tokens or 0, reply.output_tokens or 0)
    regular_cost = sum(price * n for price, n in zip(regular, tokens, strict=True))
    if None in batched or not regular_cost:
        return None
    return Decimal(str(sum(price * n for price, n in zip(batched, tokens, strict=True)) / regular_cost))


def build_request_body(shaped: ShapedRequest) -> RequestBody:
    """Return the body, and only the API's own headers, such as `anthropic-version` and `anthropic-beta`."""
    headers = {name.lower(): value for name, value in shaped.headers.items() if name.lower().startswith("anthropic-")}
    return RequestBody(_json.loads(shaped.body), headers)


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


class ReplayTransport(Exchange):
    """A transport that returns a stored reply, as from a batch, as if it had just arrived."""

    def __init__(self, request: CallRequest, key: str, status: int, body: bytes) -> None:
        super().__init__(request, key)
        self._reply = status, body

    async def _send(self, url: str, data: Any, json: Any, params: Any, headers: Any) -> None:
        self.status, body = self._reply
        self.body = redact_body(body, list_secrets(self.key))
        self.headers = {"content-type": "application/json"}
