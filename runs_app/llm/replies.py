"""The reading of a provider's reply, in litellm's form, into a CallReply."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from runs_app.llm.calls import CallReply, CallRequest, CostSource, ErrorClass
from runs_app.llm.failures import replace_unstorable, reported_error
from runs_app.llm.http_transport import Exchange
from runs_app.llm.rate_limit_headers import parse_allowance
from runs_app.llm.stated_costs import parse_dollars, parse_token_count
from runs_app.pricing.costs import Usage, compute_cost, compute_list_cost

# (request, usage as litellm gives it, or tokens alone) -> US dollars by litellm's price list, or None.
ListedCost = Callable[[CallRequest, Any], float | None]


def read_reply(
    request: CallRequest, response: Any, exchange: Exchange, latency_ms: int, listed_cost: ListedCost
) -> CallReply:
    """Return the reply that litellm read from an exchange. Raise CallFailure for one without an answer."""
    choices = getattr(response, "choices", None)
    if not choices:
        raise exchange.fail(ErrorClass.MALFORMED_REPLY, f"the reply has no choices: {exchange.text}")
    payload = exchange.payload
    if reported_error(payload) is not None:
        raise exchange.failure_after(ValueError("a reply that reports an error"))
    message = choices[0].message
    refusal = _refusal(message)
    text = replace_unstorable(message.content or refusal or "")
    finish_reason = _short(choices[0].finish_reason, 40)
    usage = getattr(response, "usage", None)
    tokens = _tokens(usage, has_text=bool(text))
    stated = exchange.bill.stated_usd
    cost, source = _cost(request, usage, tokens, listed_cost, stated)
    return CallReply(
        text=text,
        raw_text=_raw_text(payload, text),
        reasoning=replace_unstorable(_reasoning(message)),
        finish_reason=finish_reason,
        refused=bool(refusal) or finish_reason == "content_filter",
        response_id=_short(payload.get("id") or payload.get("responseId"), 200),
        served_model=_short(_bare(response.model, request), 200),
        served_provider=_short(payload.get("provider") or request.provider, 80),
        **tokens,
        cost_usd=cost,
        cost_source=source,
        latency_ms=latency_ms,
        trace_id=exchange.trace_id,
        list_usd=_list_price(request, tokens, cost, source, listed_cost),
        stated_usd=stated,
        allowance=parse_allowance(exchange.headers),
    )


def _refusal(message: Any) -> str:
    """Return the text of a refusal, if the provider separates it."""
    apart = getattr(message, "provider_specific_fields", None) or {}
    refusal = getattr(message, "refusal", None) or apart.get("refusal")
    return refusal if isinstance(refusal, str) else ""


def _reasoning(message: Any) -> str:
    apart = getattr(message, "provider_specific_fields", None) or {}
    reasoning = getattr(message, "reasoning_content", None) or apart.get("reasoning_content") or apart.get("reasoning")
    return reasoning if isinstance(reasoning, str) else ""


def _raw_text(payload: dict[str, Any], text: str) -> str:
    """Return the text as received, if the reply has OpenAI's form: litellm removes a leading <think> block."""
    try:
        content = payload["choices"][0]["message"]["content"]
    except (LookupError, TypeError):
        return text
    return replace_unstorable(content) if isinstance(content, str) else text


def _bare(model: Any, request: CallRequest) -> str:
    """Return the model that the provider says it served, without the provider's name that litellm adds."""
    served = str(model or "")
    prefix = f"{request.provider}/"
    return served if request.model.startswith(prefix) else served.removeprefix(prefix)


def _tokens(usage: Any, *, has_text: bool) -> dict[str, int | None]:
    """Return the token counts of a reply by their names in CallReply, or None for all if they are impossible.

    A request has tokens, and so has an answer with text. A price on fewer tokens would be too low.
    """
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")
    asked, answered = (parse_token_count(getattr(usage, name, None)) for name in ("prompt_tokens", "completion_tokens"))
    if not asked or answered is None or (has_text and not answered):
        return dict.fromkeys(names)
    of_input, of_output = (
        getattr(usage, "prompt_tokens_details", None),
        getattr(usage, "completion_tokens_details", None),
    )
    written = getattr(of_input, "cache_creation_tokens", None) or getattr(usage, "cache_creation_input_tokens", None)
    parts = (getattr(of_output, "reasoning_tokens", None), getattr(of_input, "cached_tokens", None), written)
    return dict(zip(names, (asked, answered, *(parse_token_count(part) or 0 for part in parts)), strict=True))


def _cost(
    request: CallRequest,
    usage: Any,
    tokens: dict[str, int | None],
    listed_cost: ListedCost,
    stated: Decimal | None,
) -> tuple[Decimal | None, CostSource]:
    """Return the cost of the call and its source: a price list, or the provider's statement if that is larger.

    A provider that bills more than the list price could otherwise exceed the budget unnoticed.
    """
    cost, source = _cost_by_list(request, usage, tokens, listed_cost)
    if stated is not None and (cost is None or stated > cost):
        return stated, "provider"
    return cost, source


def _cost_by_list(
    request: CallRequest, usage: Any, tokens: dict[str, int | None], listed_cost: ListedCost
) -> tuple[Decimal | None, CostSource]:
    """Return the cost of the call by the first that applies: free endpoint, price set by hand, litellm's list."""
    if request.is_free:
        return Decimal(0), "free"
    if tokens["input_tokens"] is not None:
        if request.prices is not None and request.prices.known:
            used = Usage(**{name: count or 0 for name, count in tokens.items()})
            by_hand = parse_dollars(compute_cost(used, request.prices))
            if by_hand is not None:
                return by_hand, "price list"
        listed = parse_dollars(listed_cost(request, usage))
        if listed is not None:
            return listed, "litellm"
    return None, "unknown"


def price_unanswered_call(request: CallRequest, usage: Usage, listed_cost: ListedCost) -> Decimal | None:
    """Return the cost of tokens that came without an answer, or None if no price is known."""
    return _cost_by_list(request, usage, {"input_tokens": usage.input_tokens, **_parts(usage)}, listed_cost)[0]


def _parts(usage: Usage) -> dict[str, int | None]:
    names = ("output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")
    return {name: getattr(usage, name) for name in names}


def _list_price(
    request: CallRequest,
    tokens: dict[str, int | None],
    cost: Decimal | None,
    source: CostSource,
    listed_cost: ListedCost,
) -> Decimal | None:
    """Return the cost of these tokens without a cache, by the list that priced the call, or None."""
    if cost is None or source in ("free", "provider"):
        return None
    if not (tokens["cache_read_tokens"] or tokens["cache_write_tokens"]):
        return cost
    used = Usage(tokens["input_tokens"] or 0, tokens["output_tokens"] or 0, tokens["reasoning_tokens"] or 0)
    if source == "price list" and request.prices is not None:
        return parse_dollars(compute_list_cost(used, request.prices))
    return parse_dollars(listed_cost(request, used))


def _short(value: Any, length: int) -> str:
    return replace_unstorable(str(value or ""))[:length]
