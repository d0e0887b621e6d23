"""The responses of the simulated provider: completions, server-sent events and faults, for OpenAI and for Anthropic.

The fault and the latency of a request are pure functions of the seed, the request and its repetition.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import secrets
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.known_answers import RecordedAnswer
from runs_app.simulator.request_parser import ChatRequest
from runs_app.simulator.seeded_random import draw_normal, draw_uniforms

# The same number for each image, as for 1024 x 1024 pixels in four tiles. Reading the sizes would cost too much time.
IMAGE_TOKENS = 85 + 4 * 170
CHARACTERS_PER_TOKEN = 4

_instance = secrets.token_hex(5)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Reply:
    """The content of a completion's body."""

    content: str | None
    finish_reason: str = "stop"
    reasoning: str | None = None
    refusal: str | None = None
    usage: dict[str, Any] | None = None

    def truncate(self, max_tokens: int | None) -> Reply:
        """Return the reply truncated at `max_tokens`, as if the model ran out of tokens."""
        limit = None if max_tokens is None else max_tokens * CHARACTERS_PER_TOKEN
        if limit is None or self.content is None or len(self.content) <= limit:
            return self
        return Reply(self.content[:limit], "length", self.reasoning)

    def apply_fault(self, fault: str | None) -> Reply:
        """Return the reply with a fault that still has status 200."""
        if fault == "refusal":
            return Reply(None, "content_filter", refusal="I'm sorry, but I cannot help with that.")
        if fault == "truncated":
            return Reply((self.content or "")[: len(self.content or "") // 2], "length", self.reasoning)
        if fault == "empty":
            return Reply("", "stop")
        return self


def count_tokens(text: str | None) -> int:
    return -(-len(text or "") // CHARACTERS_PER_TOKEN)


def build_reply(recorded: RecordedAnswer) -> Reply:
    return Reply(
        recorded.content,
        recorded.finish_reason,
        recorded.reasoning,
        recorded.refusal,
        dict(recorded.usage or {}) or None,
    )


def count_usage(request: ChatRequest, reply: Reply) -> dict[str, Any]:
    """Return token counts in OpenAI's format: a quarter of the characters, plus a constant for each image."""
    prompt = count_tokens(request.text) + IMAGE_TOKENS * len(request.images)
    reasoning = count_tokens(reply.reasoning)
    completion = count_tokens(reply.content) + count_tokens(reply.refusal) + reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def build_completion(request: ChatRequest, reply: Reply, served_name: str | None, *, has_choices: bool = True) -> bytes:
    """Return the body of a chat completion, with a unique id."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.content, "refusal": reply.refusal}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish_reason}
    body = {
        "id": f"chatcmpl-{_instance}{next(_numbers):08x}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": served_name or request.model,
        "system_fingerprint": f"fp_{_instance}",
        "choices": [choice] if has_choices else [],
        "usage": reply.usage or count_usage(request, reply),
    }
    return json.dumps(body).encode()


# By status: (type, code) of OpenAI's error object.
ERROR_TYPES: dict[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", "forbidden"),
    404: ("invalid_request_error", "not_found"),
    422: ("invalid_request_error", "unprocessable_entity"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    500: ("server_error", "internal_error"),
    503: ("server_error", "overloaded"),
}


def build_error(status: int, message: str, code: str | None = None) -> dict[str, object]:
    """Return an error body in OpenAI's format."""
    kind, default_code = ERROR_TYPES.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return {"error": {"message": message, "type": kind, "param": None, "code": code or default_code}}


def choose_fault(faults: Mapping[str, float], seed: int, fingerprint: int, repetition: int) -> str | None:
    """Return the fault of this repetition of the request with this fingerprint, or None."""
    if not faults:
        return None
    position = draw_uniforms("fault", seed, fingerprint, repetition)[0]
    for name, rate in faults.items():
        if position < rate:
            return name
        position -= rate
    return None


def draw_latency(config: SimulatorConfig, fault: str | None, fingerprint: int, repetition: int) -> float:
    """Return the seconds until the response. A 429 has no delay, as from a real gateway."""
    if fault == "429":
        return 0.0
    if fault == "slow" and config.slow_s is not None:
        return config.slow_s
    latency = config.latency_ms / 1000
    if config.latency_sigma:
        latency *= math.exp(config.latency_sigma * draw_normal("latency", config.seed, fingerprint, repetition))
    return latency * 50 if fault == "slow" else latency


STOP_REASONS = {"length": "max_tokens", "content_filter": "refusal"}


def build_message(chat: ChatRequest, reply: Reply, served_name: str | None = None) -> dict[str, Any]:
    """Return a message of Anthropic's API."""
    usage = count_usage(chat, reply)
    texts = [("thinking", reply.reasoning), ("text", reply.content or reply.refusal or "")]
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": served_name or chat.model,
        "content": [{"type": kind, kind: text} for kind, text in texts if text is not None],
        "stop_reason": STOP_REASONS.get(reply.finish_reason, "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
    }


def list_chunks(chat: ChatRequest, reply: Reply, served_name: str | None, *, has_choices: bool) -> Iterator[bytes]:
    """Yield the events of a chat completion. The last one before the end mark has the tokens, if the request asks."""
    completion = json.loads(build_completion(chat, reply, served_name))
    head = {name: completion[name] for name in ("id", "created", "model", "system_fingerprint")}
    head["object"] = "chat.completion.chunk"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _split_words(reply.reasoning)]
    deltas += [{"refusal": piece} for piece in _split_words(reply.refusal)]
    deltas += [{"content": piece} for piece in _split_words(reply.content)]
    if has_choices:
        for delta in deltas:
            yield _format_event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        yield _format_event(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish_reason}]})
    if chat.wants_usage:
        yield _format_event(head | {"choices": [], "usage": completion["usage"]})
    yield b"data: [DONE]\n\n"


def list_message_events(chat: ChatRequest, reply: Reply, served_name: str | None) -> Iterator[bytes]:
    """Yield the events of a message of Anthropic's API. The first one has the tokens of the input."""
    message = build_message(chat, reply, served_name)
    usage = message["usage"]
    start = message | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    yield _format_event({"type": "message_start", "message": start}, named=True)
    for index, block in enumerate(message["content"]):
        kind = block["type"]
        empty = {"type": kind, kind: ""}
        yield _format_event({"type": "content_block_start", "index": index, "content_block": empty}, named=True)
        for piece in _split_words(block[kind]):
            delta = {"type": f"{kind}_delta", kind: piece}
            yield _format_event({"type": "content_block_delta", "index": index, "delta": delta}, named=True)
        yield _format_event({"type": "content_block_stop", "index": index}, named=True)
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    counts = {"output_tokens": usage["output_tokens"]}
    yield _format_event({"type": "message_delta", "delta": end, "usage": counts}, named=True)
    yield _format_event({"type": "message_stop"}, named=True)


def _format_event(event: dict[str, Any], *, named: bool = False) -> bytes:
    name = f"event: {event['type']}\n" if named else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def _split_words(text: str | None) -> list[str]:
    """Split a text into words, each with the space before it, as models stream tokens."""
    return re.findall(r"\s*\S+|\s+\Z", text or "")
