"""The parser of replies: from an answer and its exchange to a CallReply."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

from runs_app.llm.answers import ProviderAnswer, TokenCounts
from runs_app.llm.calls import CallFailure, CallReply, CallRequest, CostSource, ErrorClass
from runs_app.llm.failures import find_reported_error, replace_unstorable
from runs_app.llm.http_transport import Exchange
from runs_app.llm.providers import PROVIDERS
from runs_app.llm.rate_limit_headers import parse_allowance
from runs_app.llm.stated_costs import choose_larger, parse_dollars, parse_token_count, read_stated_usd
from runs_app.pricing.costs import Usage

# (request, usage in litellm's form, the reply's or our own) -> US dollars by litellm's price list, or None.
ListedCost = Callable[[CallRequest, Any], float | None]


def read_reply(
    request: CallRequest, answer: ProviderAnswer | None, exchange: Exchange, latency_ms: int, listed_cost: ListedCost
) -> CallReply:
    """Return the reply of an exchange with this answer. Raise CallFailure if there is none."""
    if answer is None:
        raise exchange.build_failure(ErrorClass.MALFORMED_REPLY, f"the reply has no choices: {exchange.text}")
    payload = exchange.payload
    if find_reported_error(payload) is not None:
        raise exchange.get_failure(ValueError("a reply that reports an error"))
    text = replace_unstorable(answer.content or answer.refusal or "")
    finish_reason = _truncate(answer.finish_reason, 40)
    tokens = _read_tokens(answer.counts, has_text=bool(text))
    stated = read_stated_usd(payload) if payload else exchange.bill.stated_usd
    cost, source = _choose_cost(request, answer.usage, tokens, listed_cost, stated)
    return CallReply(
        text=text,
        raw_text=_read_raw_text(payload, text),
        reasoning=replace_unstorable(answer.reasoning),
        finish_reason=finish_reason,
        refused=bool(answer.refusal) or finish_reason == "content_filter",
        response_id=_truncate(payload.get("id") or payload.get("responseId"), 200),
        served_model=_truncate(_strip_provider(answer.model, request), 200),
        served_provider=_truncate(payload.get("provider") or request.provider, 80),
        **cast(dict[str, Any], tokens),
        cost_usd=cost,
        cost_source=source,
        latency_ms=latency_ms,
        trace_id=exchange.trace_id,
        list_usd=_compute_list_price(request, tokens, cost, source, listed_cost),
        stated_usd=stated,
        allowance=parse_allowance(exchange.headers),
    )


def _read_raw_text(payload: dict[str, Any], text: str) -> str:
    """Return the text as received. In OpenAI's form, litellm has removed a leading <think> block from `text`."""
    try:
        content = payload["choices"][0]["message"]["content"]
    except (LookupError, TypeError):
        return text
    return replace_unstorable(content) if isinstance(content, str) else text


def _strip_provider(model: Any, request: CallRequest) -> str:
    """Return the served model as the provider states it, without the provider's name that litellm adds."""
    served = str(model or "")
    prefix = f"{PROVIDERS[request.provider].adapter}/"
    return served if request.model.startswith(prefix) else served.removeprefix(prefix)


def _read_tokens(counts: TokenCounts, *, has_text: bool) -> dict[str, int | None]:
    """Return the token counts of a reply by their names in CallReply. All are None if they are impossible.

    Every request has tokens, and so has every answer with text. With fewer tokens, the computed cost would be too low.
    """
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")
    n_input, n_output = parse_token_count(counts.input), parse_token_count(counts.output)
    if not n_input or n_output is None or (has_text and not n_output):
        return dict.fromkeys(names)
    parts = (counts.reasoning, counts.cache_read, counts.cache_write)
    return dict(zip(names, (n_input, n_output, *(parse_token_count(part) or 0 for part in parts)), strict=True))


def _choose_cost(
    request: CallRequest,
    usage: Any,
    tokens: dict[str, int | None],
    listed_cost: ListedCost,
    stated: Decimal | None,
) -> tuple[Decimal | None, CostSource]:
    """Return the cost of the call and its source: a price list, or the provider's statement if it is larger.

    Otherwise a provider that bills more than the list price could exceed the budget unnoticed.
    """
    cost, source = _compute_listed_cost(request, usage, tokens, listed_cost)
    if stated is not None and (cost is None or stated > cost):
        return stated, "provider"
    return cost, source


def _compute_listed_cost(
    request: CallRequest, usage: Any, tokens: dict[str, int | None], listed_cost: ListedCost
) -> tuple[Decimal | None, CostSource]:
    """Return the cost of the call by the first that applies: free endpoint, price set by hand, litellm's list."""
    if request.is_free:
        return Decimal(0), "free"
    if tokens["input_tokens"] is not None:
        if request.prices is not None and request.prices.is_known:
            used = Usage(**{name: count or 0 for name, count in tokens.items()})
            by_hand = parse_dollars(used.compute_cost(request.prices))
            if by_hand is not None:
                return by_hand, "price list"
        listed = parse_dollars(listed_cost(request, usage))
        if listed is not None:
            return listed, "litellm"
    return None, "unknown"


def add_bill(
    request: CallRequest,
    failure: CallFailure,
    exchange: Exchange,
    listed_cost: ListedCost,
    discount: Decimal = Decimal(0),
) -> CallFailure:
    """Add the amount billed for a call without an answer: the stated cost, or the cost of its tokens."""
    bill = exchange.bill
    computed = Decimal(0) if request.is_free else None
    if bill.usage is not None:
        listed = price_unanswered_call(request, bill.usage, listed_cost)
        computed = None if listed is None else parse_dollars(listed * (1 - discount))
    failure.usage, failure.cost_usd = bill.usage, choose_larger(bill.stated_usd, computed)
    return failure


def price_unanswered_call(request: CallRequest, usage: Usage, listed_cost: ListedCost) -> Decimal | None:
    """Return the cost of tokens that came without an answer, or None if no price is known."""
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")
    return _compute_listed_cost(request, usage, {name: getattr(usage, name) for name in names}, listed_cost)[0]


def _compute_list_price(
    request: CallRequest,
    tokens: dict[str, int | None],
    cost: Decimal | None,
    source: CostSource,
    listed_cost: ListedCost,
) -> Decimal | None:
    """Return the cost of these tokens without the provider's cache, by the list that priced the call, or None."""
    if cost is None or source in ("free", "provider"):
        return None
    if not (tokens["cache_read_tokens"] or tokens["cache_write_tokens"]):
        return cost
    uncached = Usage(tokens["input_tokens"] or 0, tokens["output_tokens"] or 0, tokens["reasoning_tokens"] or 0)
    if source == "price list" and request.prices is not None:
        return parse_dollars(uncached.compute_list_cost(request.prices))
    return parse_dollars(listed_cost(request, uncached))


def _truncate(value: Any, length: int) -> str:
    return replace_unstorable(str(value or ""))[:length]
