"""The bodies of responses: completions with their usage, truncated completions and faults."""

import itertools
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

from runs_app.simulator.recordings import RecordedAnswer
from runs_app.simulator.request_parser import ChatRequest

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


def truncate(reply: Reply, max_tokens: int | None) -> Reply:
    """Return the reply truncated at `max_tokens`, as if the model ran out of tokens."""
    limit = None if max_tokens is None else max_tokens * CHARACTERS_PER_TOKEN
    if limit is None or reply.content is None or len(reply.content) <= limit:
        return reply
    return Reply(reply.content[:limit], "length", reply.reasoning)


def apply_fault(reply: Reply, fault: str | None) -> Reply:
    """Return the reply with a fault that still has status 200."""
    if fault == "refusal":
        return Reply(None, "content_filter", refusal="I'm sorry, but I cannot help with that.")
    if fault == "truncated":
        return Reply((reply.content or "")[: len(reply.content or "") // 2], "length", reply.reasoning)
    if fault == "empty":
        return Reply("", "stop")
    return reply


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
