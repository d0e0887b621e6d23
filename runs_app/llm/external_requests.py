"""Requests that other programs send to the gateway: what they may contain, their upper bounds, and their texts. Pure.

A budget is exact only if a request cannot cost more than its bound. So a request has only known fields: a field of a
provider may add paid tools, other models or a dearer service.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from runs_app.llm import parameters
from runs_app.llm.failures import replace_unstorable
from runs_app.llm.providers.base import SERVER_PARAMETERS
from runs_app.pricing.tokens import find_image_rule

SHARED = frozenset({"model", "messages", "stream", "temperature", "top_p", "top_k", "tools", "tool_choice", "thinking"})
FIELDS: Mapping[str, frozenset[str]] = {
    "openai": SHARED
    | (SERVER_PARAMETERS - {"provider"})
    | frozenset({"max_tokens", "max_completion_tokens", "n", "stop", "seed", "presence_penalty", "frequency_penalty"})
    | frozenset({"logit_bias", "logprobs", "top_logprobs", "user", "safety_identifier", "prompt_cache_key", "metadata"})
    | frozenset({"response_format", "functions", "function_call", "parallel_tool_calls", "reasoning_effort"})
    | frozenset({"stream_options", "verbosity", "guided_json", "guided_regex", "guided_choice", "guided_grammar"}),
    "anthropic": SHARED | frozenset({"max_tokens", "system", "stop_sequences", "metadata"}),
}
TOOL_TYPES: Mapping[str, Sequence[str | None]] = {"openai": ("function",), "anthropic": (None, "custom")}
PART_TYPES = frozenset(
    {"text", "image_url", "image", "input_audio", "refusal", "tool_use", "tool_result", "thinking", "redacted_thinking"}
)
# Sizes at which the rules of all providers reach their most tokens.
LARGE_IMAGES = ((8192, 8192), (2048, 768), (8192, 3072), (10_000, 768))
REPLY_TOKENS = 64  # What a provider may add around messages and tools, besides one token for each byte.
MAX_MESSAGES = 10_000
MAX_OUTPUT_TOKENS = 10_000_000  # No model answers as much, and its cost fits the column.


class RequestRefused(ValueError):
    """A request that the gateway does not pass on. The message names the field."""


def check_request(payload: Any, form: str, *, has_budget: bool, has_write_price: bool) -> dict[str, Any]:
    """Return the request. Raise RequestRefused if it has another form, or may cost more than its bound."""
    if not isinstance(payload, dict):
        raise RequestRefused("the body must be a JSON object")
    if not isinstance(payload.get("model"), str):
        raise RequestRefused("model: name a model of the experiment")
    messages = payload.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise RequestRefused("messages: send a list of messages")
    if len(messages) > MAX_MESSAGES:
        raise RequestRefused(f"messages: send at most {MAX_MESSAGES:,}")
    _check_fields(payload, form)
    for mark in _iterate_values(payload, "cache_control"):
        if _get(mark, "ttl") not in (None, "5m") or (has_budget and not has_write_price):
            raise RequestRefused("cache_control: the model has no price for writing into this cache")
    return payload


def _check_fields(payload: Mapping[str, Any], form: str) -> None:
    if unknown := sorted(payload.keys() - FIELDS[form]):
        raise RequestRefused(f"{unknown[0]}: the gateway does not pass this field on; it may change the price")
    tools = payload.get("tools") or []
    if not isinstance(tools, list) or not all(_get(tool, "type") in TOOL_TYPES[form] for tool in tools):
        raise RequestRefused("tools: only functions that the program calls itself; tools of the provider cost extra")
    if not isinstance(payload.get("stream_options") or {}, dict):
        raise RequestRefused("stream_options must be an object")
    for message in payload["messages"]:
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise RequestRefused("messages: tool_calls must be a list of objects")
    for part in _iterate_parts(payload):
        if part.get("type") not in PART_TYPES:
            raise RequestRefused(f"messages: a part of type {part.get('type')!r} has no known size")
    if type(payload.get("stream", False)) is not bool:
        raise RequestRefused("stream must be true or false")
    n = payload.get("n")
    if n is not None and (type(n) is not int or not 1 <= n <= 128):
        raise RequestRefused("n must be a whole number from 1 to 128")


def compute_bounds(payload: Mapping[str, Any], model: str, model_limit: int | None) -> tuple[int, int | None]:
    """Return upper bounds of the input and output tokens. No text has more tokens than bytes.

    The output has no bound, None, if neither the request nor the model limits it.
    """
    n_images = sum(part.get("type") in ("image_url", "image") for part in _iterate_parts(payload))
    counted = _without_images(dict(payload)) if n_images else payload
    text = json.dumps(counted, ensure_ascii=False, separators=(",", ":"))
    n_input = len(text.encode("utf-8", "surrogatepass")) + REPLY_TOKENS + n_images * _find_most_image_tokens(model)
    n_output = parameters.compute_output_ceiling(payload, model_limit)
    if n_output is not None and n_output > MAX_OUTPUT_TOKENS:
        raise RequestRefused(f"max_tokens: at most {MAX_OUTPUT_TOKENS:,} tokens with all completions")
    return n_input, n_output


@lru_cache(maxsize=256)
def _find_most_image_tokens(model: str) -> int:
    rule = find_image_rule(model)
    return max(rule.count_tokens(*size) for size in LARGE_IMAGES)


def describe_messages(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the conversation in the form in which trials store one: texts, calls of tools, and what is left out."""
    messages = []
    if system := payload.get("system"):
        messages.append({"role": "system", "content": _join_texts(system)[0]})
    for message in payload["messages"]:
        text, left_out, calls = _join_texts(message.get("content"))
        calls += [
            {
                "function": str(_get(_get(call, "function"), "name")),
                "arguments": _get(_get(call, "function"), "arguments"),
            }
            for call in message.get("tool_calls") or []
        ]
        stored: dict[str, Any] = {"role": str(message.get("role", ""))[:40], "content": text}
        if left_out:
            stored["left_out"] = left_out
        if calls:
            stored["tool_calls"] = calls
        messages.append(stored)
    described: list[dict[str, Any]] = clean(messages)
    return described


def clean(value: Any) -> Any:
    """Return the value with the characters replaced that PostgreSQL cannot store."""
    if isinstance(value, str):
        return replace_unstorable(value)
    if isinstance(value, list):
        return [clean(element) for element in value]
    if isinstance(value, dict):
        return {clean(key): clean(element) for key, element in value.items()}
    return value


def find_session(payload: Mapping[str, Any], header: str) -> str:
    """Return the name of the program's session: its header, or the user that the request names."""
    named = header or payload.get("user") or _get(payload.get("metadata"), "user_id") or ""
    return replace_unstorable(str(named))[:120]


def _join_texts(content: Any) -> tuple[str, list[str], list[dict[str, Any]]]:
    """Return the text of a message's content, the kinds of the parts that are left out, and its calls of tools."""
    if isinstance(content, str):
        return content, [], []
    texts, left_out, calls = [], [], []
    for part in content if isinstance(content, list) else []:
        kind = _get(part, "type")
        if kind == "tool_use":
            calls.append({"function": str(part.get("name")), "arguments": part.get("input")})
        elif kind == "tool_result":
            texts.append(_join_texts(part.get("content"))[0])
        elif kind in ("text", "refusal"):
            texts.append(str(part.get("text") or part.get("refusal") or ""))
        else:
            left_out.append(str(kind)[:40])
    return "\n\n".join(texts), left_out, calls


def _iterate_parts(payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of all messages, also those within results of tools. Raise RequestRefused for other content."""
    contents = [message.get("content") for message in payload["messages"]] + [payload.get("system")]
    while contents:
        content = contents.pop()
        if content is None or isinstance(content, str):
            continue
        if not isinstance(content, list):
            raise RequestRefused("messages: content must be a text or a list of parts")
        for part in content:
            if not isinstance(part, dict):
                raise RequestRefused("messages: each part must be an object with a type")
            yield part
            if part.get("type") == "tool_result":
                contents.append(part.get("content"))


def _iterate_values(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, element in value.items():
            if key == name:
                yield element
            else:
                yield from _iterate_values(element, name)
    elif isinstance(value, list):
        for element in value:
            yield from _iterate_values(element, name)


def _without_images(value: Any) -> Any:
    """Return the value without the data of its images, which are counted by their own rule."""
    if isinstance(value, list):
        return [_without_images(element) for element in value]
    if isinstance(value, dict):
        if value.get("type") in ("image_url", "image"):
            return {"type": value["type"]}
        return {key: _without_images(element) for key, element in value.items()}
    return value


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
