"""The tokens and the cost that a provider's reply states, with or without an answer. Pure."""

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
MAX_COST_USD = 100_000  # A single call cannot cost this, and the column cannot hold it.
TICKS_PER_USD = 10**10  # The unit of xAI's costs.

_COUNTS = ("usage", "usageMetadata")  # The fields in which providers state the tokens used.
_INPUT = ("prompt_tokens", "input_tokens", "promptTokenCount", "prompt_eval_count")
_OUTPUT = ("completion_tokens", "output_tokens", "candidatesTokenCount", "eval_count")
_COSTS = ("cost", "total_cost", "estimated_cost")
_NUMBER = r"(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?=\s*[,}])"  # Complete: a number at the end of a cut text may lack digits.


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill of a reply. `usage` is None if it states no tokens, `stated_usd` is None if it states no cost."""

    usage: Usage | None = None
    stated_usd: Decimal | None = None


def read_bill(payload: Mapping[str, Any], text: str) -> Bill:
    """Return the bill that a reply states: in its JSON object or, if that is empty, in its unreadable text."""
    if not payload:
        payload = _parse_broken_usage(text)
    return Bill(_usage(payload), _stated_usd(payload))


def parse_dollars(value: Any) -> Decimal | None:
    """Return an amount that a call can cost, rounded to the eight stored places, or None for anything else."""
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(value)
    return Decimal(str(value)).quantize(EIGHT_PLACES) if is_number and 0 <= value < MAX_COST_USD else None


def parse_token_count(value: Any) -> int | None:
    """Return a number of tokens, or None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return int(value) if is_number and 0 <= value <= MAX_TOKENS else None


def choose_larger(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    """Return the larger amount. An unknown amount does not count."""
    return max((usd for usd in (one, other) if usd is not None), default=None)


def _usage(payload: Mapping[str, Any]) -> Usage | None:
    counts = next((found for name in _COUNTS if isinstance(found := payload.get(name), dict)), payload)
    asked, answered = _first(counts, _INPUT), _first(counts, _OUTPUT)
    if asked is None and answered is None:
        return None
    read, written = (parse_token_count(counts.get(f"cache_{kind}_input_tokens")) or 0 for kind in ("read", "creation"))
    thought = parse_token_count(counts.get("thoughtsTokenCount")) or 0
    return Usage(
        input_tokens=min((asked or 0) + read + written, MAX_TOKENS),
        output_tokens=min((answered or 0) + thought, MAX_TOKENS),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _first(counts: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((n for name in names if (n := parse_token_count(counts.get(name))) is not None), None)


def _stated_usd(payload: Mapping[str, Any]) -> Decimal | None:
    usage = payload.get("usage")
    stated = None
    for place in (payload, usage if isinstance(usage, dict) else {}):
        for name in _COSTS:
            cost = place.get(name)
            cost = cost.get("total_cost") if isinstance(cost, dict) else cost
            stated = choose_larger(stated, parse_dollars(cost))
        ticks = parse_dollars(place.get("cost_in_usd_ticks", -1) / TICKS_PER_USD) if _has_ticks(place) else None
        stated = choose_larger(stated, ticks)
    upstream = _upstream_usd(usage) if isinstance(usage, dict) else None
    return stated if upstream is None else (stated or Decimal(0)) + upstream


def _has_ticks(place: Mapping[str, Any]) -> bool:
    ticks = place.get("cost_in_usd_ticks")
    return isinstance(ticks, int | float) and not isinstance(ticks, bool)


def _upstream_usd(usage: Mapping[str, Any]) -> Decimal | None:
    """Return the provider's bill for OpenRouter with the user's own provider key: there, `cost` is only the fee."""
    details = usage.get("cost_details")
    if not usage.get("is_byok") or not isinstance(details, dict):
        return None
    return parse_dollars(details.get("upstream_inference_cost"))


def _parse_broken_usage(text: str) -> dict[str, Any]:
    """Return the counts that can be read in a text that is not JSON, such as a cut reply."""
    for name in _COUNTS:
        at = text.rfind(f'"{name}"')
        begins = text.find("{", at) if at >= 0 else -1
        if begins < 0:
            continue
        try:
            found, _ = json.JSONDecoder().raw_decode(text, begins)
        except (ValueError, RecursionError):
            found = _find_numbers(text[begins : begins + 4096])
        return {name: found}
    return {}


def _find_numbers(text: str) -> dict[str, Any]:
    names = (*_INPUT, *_OUTPUT, *_COSTS, "thoughtsTokenCount")
    found = {name: re.search(rf'"{name}"\s*:\s*{_NUMBER}', text) for name in names}
    return {name: json.loads(match[1]) for name, match in found.items() if match}
