"""The one door to models: litellm shapes requests and reads replies, our own transport sends them.

litellm knows each provider's form of a request and a reply, and its prices. What it adds around a call (a thread,
logging, retries, clients that send a request again when a connection breaks) is left out: one call is one request, to
an allowed address, with an explicit key, within its time. That is also three times quicker.

litellm takes seconds to import, so it is imported when it is first needed: `warm_up` does that ahead of time.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import time
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings

from runs_app.batches.dry_run import CapturingTransport, ReplayTransport
from runs_app.llm import call_observer, parameters
from runs_app.llm.calls import CallFailure, CallReply, CallRequest, ErrorClass, Shaped
from runs_app.llm.http_transport import Exchange, close
from runs_app.llm.keys import KEYLESS, problem_with_name, read_key
from runs_app.llm.replies import computed_cost, read_reply
from runs_app.llm.stated_costs import dollars, larger
from runs_app.pricing.costs import Usage

__all__ = ["call", "close", "read", "shape", "warm_up", "way_in"]

# Where each provider is reached when the endpoint names no address. None: it has to name one.
PROVIDER_URLS: dict[str, str | None] = {
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": None,  # its addresses hold the model; litellm makes them
    "ollama_chat": "http://localhost:11434",
    "hosted_vllm": None,
}
_NEED_A_URL = frozenset({"hosted_vllm"})
_SELF_HOSTED = frozenset({"hosted_vllm", "ollama_chat"})  # no list has their prices; litellm would ask the server

# Parameters that litellm translates for each provider. `parameters` says which of all may be sent.
_TRANSLATED = frozenset(
    {"temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "reasoning_effort", "stop", "logit_bias"}
    | {"presence_penalty", "frequency_penalty", "logprobs", "top_logprobs", "thinking", "verbosity", "service_tier"}
)
# Further ones by their names at the provider. Where OpenAI's form is spoken, the others go into the body as they are.
_NATIVE: dict[str, frozenset[str]] = {
    "anthropic": frozenset({"top_k"}),
    "gemini": frozenset({"top_k"}),
    "ollama_chat": frozenset(
        {"top_k", "min_p", "num_ctx", "repeat_penalty", "repeat_last_n", "mirostat", "think", "keep_alive"}
    ),
}


async def call(request: CallRequest) -> CallReply:
    """Make one call. Raises CallFailure only (and CancelledError when cancelled).

    When a drain's loop ends it awaits `close()`, which closes that loop's connections.
    """
    try:
        reply = await _called(request)
    except CallFailure as failure:
        _tell(request, failure)
        raise
    _tell(request, reply)
    return reply


def _tell(request: CallRequest, outcome: call_observer.Outcome) -> None:
    if settings.CALL_OBSERVER:
        call_observer.observer_queue(settings.CALL_OBSERVER).tell(request, outcome)


async def _called(request: CallRequest) -> CallReply:
    exchange = _exchange_class()(request, _key(request))
    started = time.perf_counter()  # Not before: the first exchange of a process imports litellm, for seconds.
    try:
        response = await _response(request, exchange)
        return read_reply(request, response, exchange, _milliseconds_since(started), _listed_cost)
    except CallFailure as failure:
        raise _with_circumstances(_with_bill(request, failure, exchange), exchange, started) from None
    except Exception as error:  # noqa: BLE001 - whatever a provider's adapter raises is a failed call
        billed = _with_bill(request, exchange.failure_after(error), exchange)
        raise _with_circumstances(billed, exchange, started) from None


async def _response(request: CallRequest, exchange: Exchange) -> Any:
    """The reply as litellm reads it: without its counts of tokens, if it is these that litellm cannot read."""
    try:
        return await _completion(request, exchange)
    except CallFailure:
        raise
    except Exception:
        uncounted = exchange.body_without_counts()
        if uncounted is None:
            raise
    return await _completion(
        request, _exchange_class(ReplayTransport)(request, exchange.key, exchange.status, uncounted)
    )


def _with_circumstances(failure: CallFailure, exchange: Exchange, started: float) -> CallFailure:
    failure.latency_ms, failure.trace_id = _milliseconds_since(started), exchange.trace_id
    return failure


def _with_bill(
    request: CallRequest, failure: CallFailure, exchange: Exchange, discount: Decimal = Decimal(0)
) -> CallFailure:
    """Add what the provider billed for a call without an answer: the cost that it states, or that of its tokens."""
    bill = exchange.bill
    computed = None
    if bill.usage is not None:
        at_list = computed_cost(request, bill.usage, _listed_cost)
        computed = None if at_list is None else dollars(at_list * (1 - discount))
    failure.usage, failure.cost_usd = bill.usage, larger(bill.stated_usd, computed)
    return failure


def _milliseconds_since(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


def warm_up() -> None:
    """Import litellm and what it imports on its first call, then take all of it out of garbage collection.

    Call it once in a worker, before work starts: the pause is seconds, and without it each collection walks litellm.
    """
    for provider in PROVIDER_URLS:
        # Prepared as if to be sent, which imports the provider's adapter, and then dropped.
        request = CallRequest(provider, "warm-up", "http://127.0.0.1:9", None, [{"role": "user", "content": "."}])
        _completion(request, _exchange_class()(request, KEYLESS)).close()
    gc.collect()
    gc.freeze()


# litellm --------------------------------------------------------------------------------------------------------------


@functools.cache
def _litellm() -> Any:
    """litellm, imported with its network look-ups, telemetry, callbacks, retries and logs switched off."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches its prices from the network
    os.environ["LITELLM_MODE"] = "PRODUCTION"  # else it loads a .env file of the current directory
    os.environ["EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER"] = "True"  # one handler for all, not OpenAI's own client
    import litellm

    litellm.telemetry = False
    litellm.num_retries = 0
    litellm.suppress_debug_info = True
    litellm.drop_params = False  # a parameter that a model does not take is an error, not silence
    litellm.callbacks, litellm.success_callback, litellm.failure_callback, litellm.input_callback = [], [], [], []
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # its logs may quote keys
    return litellm


def _completion(request: CallRequest, exchange: Exchange) -> Any:
    """The awaitable that makes the call. `acompletion=True` is how litellm asks itself for one, without its wrapper."""
    litellm = _litellm()
    log = litellm.Logging(
        model=request.model,
        messages=request.messages,
        stream=False,
        call_type="acompletion",
        start_time=datetime.now(),  # noqa: DTZ005 - litellm subtracts naive times
        litellm_call_id=exchange.trace_id,
        function_id=exchange.trace_id,
    )
    return litellm.completion(
        model=f"{request.provider}/{request.model}",  # it cuts the first part off, even off a model's own name
        api_base=_base_url(request),
        api_key=exchange.key,
        messages=request.messages,
        response_format=request.response_format,
        timeout=request.timeout_s,
        num_retries=0,
        client=exchange,
        acompletion=True,
        litellm_logging_obj=log,
        _skip_responses_api_bridge=True,  # it would send by a client of its own
        **_parameters(request),
    )


def _base_url(request: CallRequest) -> str | None:
    """The address given or the provider's own, always explicit: litellm would else take one from the environment."""
    if request.provider not in PROVIDER_URLS:
        raise CallFailure(
            ErrorClass.NOT_ALLOWED, f"provider {request.provider!r} is not one of {', '.join(PROVIDER_URLS)}"
        )
    url = request.base_url or PROVIDER_URLS[request.provider]
    if url is None:
        if request.provider in _NEED_A_URL:
            raise CallFailure(ErrorClass.NOT_ALLOWED, f"an endpoint of {request.provider} needs a base URL")
        return None
    return url.rstrip("/")


def _key(request: CallRequest) -> str:
    """The endpoint's key, or a dummy where none is needed: litellm would else look for one in the environment."""
    if not request.key_env:
        return KEYLESS
    if problem := problem_with_name(request.key_env):
        raise CallFailure(ErrorClass.NOT_ALLOWED, f"key variable: {problem}", was_sent=False)
    key = read_key(request.key_env)
    if not key:
        raise CallFailure(ErrorClass.MISSING_KEY, f"the environment variable {request.key_env} is not set")
    return key


def _parameters(request: CallRequest) -> dict[str, Any]:
    """The sampler's parameters as litellm takes them. litellm has control arguments too, so only known names pass.

    Anthropic requires a limit, and litellm would choose one. So the model's own limit is sent, which the reservation
    rests on.
    """
    given = {name: value for name, value in request.parameters.items() if value is not None}
    if problem := parameters.problem_for(request.provider, given):
        raise CallFailure(ErrorClass.NOT_ALLOWED, problem, was_sent=False)
    if request.provider == "anthropic" and request.max_output_tokens and not parameters.sets_a_limit(given):
        given["max_tokens"] = request.max_output_tokens
    named = _TRANSLATED | _NATIVE.get(request.provider, frozenset())
    passed = {name: value for name, value in given.items() if name in named}
    extra = {name: value for name, value in given.items() if name not in named}
    if extra:
        passed["extra_body"] = extra
    if request.provider == "ollama_chat" and "reasoning_effort" not in given:
        passed.setdefault("think", False)  # its thinking models think unless told not to
    if request.base_url and request.provider not in _NATIVE:
        # litellm knows parameters by the names of models; a server of one's own may serve any.
        passed["allowed_openai_params"] = sorted(_TRANSLATED & given.keys())
    return passed


def _listed_cost(request: CallRequest, usage: Any) -> float | None:
    """US dollars by litellm's price list for the tokens used, or None if the model is not on it."""
    if request.provider in _SELF_HOSTED or not _is_listed(request.provider, request.model):
        return None
    litellm = _litellm()
    named = {"model": request.model, "custom_llm_provider": request.provider}
    if isinstance(usage, Usage):
        tokens = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
        return float(sum(litellm.cost_per_token(**named, **tokens)))
    costs = litellm.cost_per_token(**named, usage_object=usage)
    return float(sum(costs))


@functools.lru_cache(maxsize=4096)
def _is_listed(provider: str, model: str) -> bool:
    """Whether litellm lists a price. Asked once for each model: its own look-up of an unknown one is slow."""
    try:
        known = _litellm().get_model_info(model=model, custom_llm_provider=provider)
    except Exception:  # noqa: BLE001 - it raises a bare Exception for a model that it does not know
        return False
    return known.get("input_cost_per_token") is not None and known.get("output_cost_per_token") is not None


@functools.cache
def _exchange_class(kind: type[Exchange] = Exchange) -> Any:
    """An exchange as a kind of litellm's client, which its handlers ask for."""
    _litellm()
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    return type(f"Litellm{kind.__name__}", (kind, AsyncHTTPHandler), {})


# Batches --------------------------------------------------------------------------------------------------------------


def way_in(request: CallRequest) -> tuple[str, str]:
    """The base URL and the key that a call of this request would take. CallFailure where one of them is missing."""
    url = _base_url(request)
    if url is None:
        raise CallFailure(ErrorClass.NOT_ALLOWED, f"there is no one address of {request.provider}")
    return url, _key(request)


async def shape(request: CallRequest) -> Shaped:
    """What `call` would send of this request, without sending it. CallFailure where it cannot be sent."""
    rehearsal: CapturingTransport = _exchange_class(CapturingTransport)(request, _key(request))
    try:
        await _completion(request, rehearsal)
    except CallFailure:
        raise
    except Exception as error:  # noqa: BLE001 - adapters wrap what stopped the sending in errors of their own
        if rehearsal.shaped is None:
            raise rehearsal.failure_after(error) from None
    if rehearsal.shaped is None:
        raise CallFailure(ErrorClass.INTERNAL_ERROR, "nothing would have been sent", was_sent=False)
    return rehearsal.shaped


async def read(request: CallRequest, status: int, body: bytes, discount: Decimal) -> CallReply:
    """The reply to a request that went out in a batch, at the batch's price. CallFailure as `call` raises it.

    `discount` is the share that a batch saves, where litellm lists no prices of batches.
    """
    replay: ReplayTransport = _exchange_class(ReplayTransport)(request, _key(request), status, body)
    try:
        reply = read_reply(request, await _response(request, replay), replay, 0, _listed_cost)
    except CallFailure as failure:
        raise _with_bill(request, failure, replay, discount) from None
    except Exception as error:  # noqa: BLE001 - as in `call`
        raise _with_bill(request, replay.failure_after(error), replay, discount) from None
    return _at_batch_price(request, reply, discount)


def _at_batch_price(request: CallRequest, reply: CallReply, discount: Decimal) -> CallReply:
    """What it cost; its list price stays, and the ledger calls the difference what the batch saved.

    A cost that the provider states counts if it is the larger one.
    """
    if reply.cost_source not in ("price list", "litellm"):
        return reply
    listed = _listed_batch_share(request, reply) if reply.cost_source == "litellm" else None
    share = 1 - discount if listed is None else listed
    cost = None if reply.cost_usd is None else reply.cost_usd * share
    return replace(reply, cost_usd=larger(cost, reply.stated_usd))


def _listed_batch_share(request: CallRequest, reply: CallReply) -> Decimal | None:
    """What part of the usual price litellm's list asks for these tokens in a batch; None where it says nothing."""
    known = _litellm().get_model_info(model=request.model, custom_llm_provider=request.provider)
    kinds = ("input_cost_per_token", "output_cost_per_token")
    usual, batched = [known.get(kind) for kind in kinds], [known.get(f"{kind}_batches") for kind in kinds]
    tokens = (reply.input_tokens or 0, reply.output_tokens or 0)
    whole = sum(price * n for price, n in zip(usual, tokens, strict=True))
    if None in batched or not whole:
        return None
    return Decimal(str(sum(price * n for price, n in zip(batched, tokens, strict=True)) / whole))
