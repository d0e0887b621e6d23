"""Answers as server-sent events, in the forms of OpenAI and of Anthropic, and messages of Anthropic's API."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

from runs_app.simulator.request_parser import ChatRequest
from runs_app.simulator.responses import Reply, build_completion, count_usage

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
