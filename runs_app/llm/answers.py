"""The answer in a reply, as litellm reads it, and the own reading of usual replies in OpenAI's form. Pure.

litellm validates a reply as a tree of models, which takes longer than the rest of a call. `read_openai_answer` reads
the same fields of a usual reply from its JSON. It returns None for any reply with a part that could change what litellm
reads: a tool call, a <think> block, an unknown field or a value of another type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FINISH_REASONS = {"stop": "stop", "length": "length", "content_filter": "content_filter", "eos": "stop", None: "stop"}
_REPLY_FIELDS = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier", "provider", "error"}
    | {"prompt_filter_results", "prompt_logprobs", "prompt_token_ids", "kv_transfer_params", "x_groq", "prompt"}
)
_CHOICE_FIELDS = frozenset(
    {"index", "message", "finish_reason", "logprobs", "stop_reason", "token_ids", "native_finish_reason", "seed"}
    | {"content_filter_results", "error", "matched_stop"}
)
_MESSAGE_FIELDS = frozenset(
    {"role", "content", "refusal", "reasoning_content", "reasoning", "reasoning_details", "prefix"}
    | {"tool_calls", "function_call", "audio", "annotations"}
)
_EMPTY_FIELDS = ("tool_calls", "function_call", "audio", "annotations")  # Of a message: null, or an empty list.
_TEXT_TYPES = frozenset({str, type(None)})
_USAGE_COUNTS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
_OWN_COUNTS = (*sorted(_USAGE_COUNTS), "prompt_cache_hit_tokens", "prompt_cache_miss_tokens")
_USAGE_FIELDS = _USAGE_COUNTS | frozenset(
    {"prompt_tokens_details", "completion_tokens_details", "cost", "is_byok", "cost_details", "cost_in_usd_ticks"}
    | {"queue_time", "prompt_time", "completion_time", "total_time", "num_sources_used", "cached_tokens"}
    | {"prompt_cache_hit_tokens", "prompt_cache_miss_tokens", "extra_properties"}
)
_INPUT_DETAILS = frozenset({"cached_tokens", "audio_tokens", "text_tokens", "image_tokens", "video_tokens"})
_OUTPUT_DETAILS = frozenset(
    {"reasoning_tokens", "audio_tokens", "text_tokens", "image_tokens", "video_tokens"}
    | {"accepted_prediction_tokens", "rejected_prediction_tokens"}
)


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """The counts of a reply as its provider states them, of any type."""

    input: Any = None
    output: Any = None
    reasoning: Any = None
    cache_read: Any = None
    cache_write: Any = None


@dataclass(frozen=True, slots=True)
class ProviderAnswer:
    """The answer in a reply. `usage` is litellm's, or the reply's own mapping, from which litellm would make the same.

    `reasoning` and `refusal` are empty if the provider has no field for them.
    """

    content: str | None
    refusal: str
    reasoning: str
    finish_reason: Any
    model: Any
    counts: TokenCounts
    usage: Any


def read_litellm_answer(response: Any) -> ProviderAnswer | None:
    """Return the answer in litellm's response, or None without one."""
    choices = getattr(response, "choices", None)
    if not choices:
        return None
    message, usage = choices[0].message, getattr(response, "usage", None)
    fields = getattr(message, "provider_specific_fields", None) or {}
    refusal = getattr(message, "refusal", None) or fields.get("refusal")
    reasoning = getattr(message, "reasoning_content", None)
    reasoning = reasoning or fields.get("reasoning_content") or fields.get("reasoning")
    input_details = getattr(usage, "prompt_tokens_details", None)
    written = getattr(input_details, "cache_creation_tokens", None)
    return ProviderAnswer(
        content=message.content,
        refusal=refusal if isinstance(refusal, str) else "",
        reasoning=reasoning if isinstance(reasoning, str) else "",
        finish_reason=choices[0].finish_reason,
        model=response.model,
        counts=TokenCounts(
            getattr(usage, "prompt_tokens", None),
            getattr(usage, "completion_tokens", None),
            getattr(getattr(usage, "completion_tokens_details", None), "reasoning_tokens", None),
            getattr(input_details, "cached_tokens", None),
            written or getattr(usage, "cache_creation_input_tokens", None),
        ),
        usage=usage,
    )


def read_openai_answer(payload: Mapping[str, Any]) -> ProviderAnswer | None:
    """Return the answer in a usual reply of OpenAI's form, equal to litellm's reading, or None for any other reply."""
    choices = payload.get("choices")
    if not payload.keys() <= _REPLY_FIELDS or not isinstance(choices, list) or len(choices) != 1:
        return None
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if payload.get("error") is not None or not isinstance(payload.get("model"), str) or not isinstance(message, dict):
        return None
    if not _are_texts(payload, "id", "system_fingerprint", "service_tier") or not _is_plain_choice(choice):
        return None
    if not message.keys() <= _MESSAGE_FIELDS or message.get("role") != "assistant" or "content" not in message:
        return None
    if any(message.get(name) not in (None, []) for name in _EMPTY_FIELDS):
        return None
    if not _are_texts(message, "content", "refusal", "reasoning_content", "reasoning"):
        return None
    content = message["content"]
    if content and "<" in content and "reasoning_content" not in message and "reasoning" not in message:
        return None  # It may have a <think> block.
    usage = payload.get("usage")
    counts = _read_counts(usage)
    if counts is None:
        return None
    return ProviderAnswer(
        content=content,
        refusal=message.get("refusal") or "",
        reasoning=message.get("reasoning_content") or message.get("reasoning") or "",
        finish_reason=FINISH_REASONS[choice.get("finish_reason")],
        model=payload["model"],
        counts=counts,
        usage=usage,
    )


def _is_plain_choice(choice: Mapping[str, Any]) -> bool:
    reason = choice.get("finish_reason")
    is_known = reason is None or (isinstance(reason, str) and reason in FINISH_REASONS)
    return is_known and choice.keys() <= _CHOICE_FIELDS and choice.get("logprobs") is None


def _are_texts(fields: Mapping[str, Any], *names: str) -> bool:
    return {type(fields.get(name)) for name in names} <= _TEXT_TYPES


def _read_counts(usage: Any) -> TokenCounts | None:
    """Return the counts of a usual usage, or None for any other."""
    if usage is None:
        return TokenCounts()
    if not isinstance(usage, dict) or not _USAGE_COUNTS <= usage.keys() <= _USAGE_FIELDS:
        return None
    inputs = _read_details(usage.get("prompt_tokens_details"), _INPUT_DETAILS)
    outputs = _read_details(usage.get("completion_tokens_details"), _OUTPUT_DETAILS)
    if inputs is None or outputs is None or not all(map(_is_count, [usage.get(name, 0) for name in _OWN_COUNTS])):
        return None
    cost = usage.get("cost")
    if cost is not None and (isinstance(cost, bool) or not isinstance(cost, int | float)):
        return None
    cached = usage.get("prompt_cache_hit_tokens", inputs.get("cached_tokens"))  # DeepSeek's name comes first.
    return TokenCounts(usage["prompt_tokens"], usage["completion_tokens"], outputs.get("reasoning_tokens"), cached)


def _read_details(details: Any, names: frozenset[str]) -> Mapping[str, Any] | None:
    """Return the details of a count, or None for unusual ones."""
    if details is None:
        return {}
    if not isinstance(details, dict) or not details.keys() <= names:
        return None
    return details if all(value is None or _is_count(value) for value in details.values()) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31
