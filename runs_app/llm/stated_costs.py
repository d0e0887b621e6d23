"""Stated costs: the tokens and the cost in a provider's reply, with or without an answer. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runs_app.pricing.costs import Usage

EIGHT_PLACES = Decimal("1e-8")
MAX_TOKENS = 2**31 - 1
MAX_COST_USD = 100_000  # No single call costs this much, and the column cannot hold it.
TICKS_PER_USD = 10**10  # The unit of xAI's costs.

_COUNTS = ("usage", "usageMetadata")  # The fields in which providers state the tokens used.
_INPUT = ("prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens", "prompt_eval_count")
_OUTPUT = ("completion_tokens", "output_tokens", "candidatesTokenCount", "outputTokens", "eval_count")
_COSTS = ("cost", "total_cost", "estimated_cost")
_TICKS = "cost_in_usd_ticks"
_BILLED = frozenset({*_COSTS, _TICKS})  # Without any of these, a section states no cost.
LONGEST_NUMBER = 100  # Characters of a cost that is stated as text.
_DECIMAL = re.compile(r"\s*\+?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?\s*", re.ASCII)
_NUMBER = r"(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?=\"?\s*[,}])"  # A number at the end of a truncated text may lack digits.


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill of a reply. `usage` is None if it states no tokens, `stated_usd` is None if it states no cost."""

    usage: Usage | None = None
    stated_usd: Decimal | None = None


def read_bill(payload: Mapping[str, Any], text: str) -> Bill:
    """Return the bill of a reply, from its JSON object or, if that is empty, from its unreadable text."""
    if not payload:
        payload = _parse_broken_usage(text)
    return Bill(_read_usage(payload), read_stated_usd(payload))


def parse_dollars(value: Any) -> Decimal | None:
    """Return an amount that a call can cost, rounded to eight decimal places, or None for anything else.

    Some providers state it as text: "7.5".
    """
    amount = _parse_number(value)
    return amount.quantize(EIGHT_PLACES) if amount is not None and 0 <= amount < MAX_COST_USD else None


def _parse_number(value: Any) -> Decimal | None:
    """Return a finite number, also if it is written as text in ASCII digits, such as "7.5"; None for anything else."""
    if isinstance(value, str):
        return Decimal(value) if len(value) <= LONGEST_NUMBER and _DECIMAL.fullmatch(value) else None
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number:
        return None
    return value if isinstance(value, Decimal) else Decimal(str(value))


def parse_token_count(value: Any) -> int | None:
    """Return a number of tokens, or None for anything else."""
    if type(value) is int:  # The usual case: every reply has several.
        return value if 0 <= value <= MAX_TOKENS else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return int(value) if is_number and 0 <= value <= MAX_TOKENS else None


def choose_larger(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    """Return the larger amount. Unknown amounts do not count."""
    return max((usd for usd in (first, second) if usd is not None), default=None)


def _read_usage(payload: Mapping[str, Any]) -> Usage | None:
    counts = next((usage for name in _COUNTS if isinstance(usage := payload.get(name), dict)), payload)
    n_input, n_output = _find_first_count(counts, _INPUT), _find_first_count(counts, _OUTPUT)
    if n_input is None and n_output is None:
        return None
    read, written = (parse_token_count(counts.get(f"cache_{kind}_input_tokens")) or 0 for kind in ("read", "creation"))
    thinking = parse_token_count(counts.get("thoughtsTokenCount")) or 0
    return Usage(
        input_tokens=min((n_input or 0) + read + written, MAX_TOKENS),
        output_tokens=min((n_output or 0) + thinking, MAX_TOKENS),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _find_first_count(counts: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((n for name in names if (n := parse_token_count(counts.get(name))) is not None), None)


def read_stated_usd(payload: Mapping[str, Any]) -> Decimal | None:
    """Return the cost that a reply states, or None."""
    usage = payload.get("usage")
    sections = [part for part in (payload, usage) if isinstance(part, Mapping) and not _BILLED.isdisjoint(part)]
    stated = None
    for section in sections:
        for name in _COSTS:
            cost = section.get(name)
            cost = cost.get("total_cost") if isinstance(cost, dict) else cost
            stated = choose_larger(stated, parse_dollars(cost))
        if (ticks := _parse_number(section.get(_TICKS))) is not None:
            stated = choose_larger(stated, parse_dollars(ticks / TICKS_PER_USD))
    # If OpenRouter uses the user's own key of a provider, `cost` is only its fee, and the provider's bill is apart.
    details = usage.get("cost_details") if isinstance(usage, dict) and usage.get("is_byok") else None
    upstream = parse_dollars(details.get("upstream_inference_cost")) if isinstance(details, dict) else None
    return stated if upstream is None else (stated or Decimal(0)) + upstream


def _parse_broken_usage(text: str) -> dict[str, Any]:
    """Return the readable counts in a text that is not JSON, such as a truncated reply."""
    for name in _COUNTS:
        at = text.rfind(f'"{name}"')
        start = text.find("{", at) if at >= 0 else -1
        if start < 0:
            continue
        try:
            usage, _ = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            part = text[start : start + 4096]
            names = (*_INPUT, *_OUTPUT, *_COSTS, "thoughtsTokenCount")
            quotes = {field: '"?' if field in _COSTS else "" for field in names}
            matches = {field: re.search(rf'"{field}"\s*:\s*{quotes[field]}{_NUMBER}', part) for field in names}
            usage = {field: json.loads(match[1]) for field, match in matches.items() if match}
        return {name: usage}
    return {}
