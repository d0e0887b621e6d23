"""A parser of chat completion requests."""

import base64
import binascii
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

# Fields without effect on the answer: two requests that differ only in these fields are equal.
VOLATILE = frozenset(
    {"user", "metadata", "n", "stream", "stream_options", "store", "service_tier", "safety_identifier"}
    | {"prompt_cache_key", "timeout"}
)

# A salt that prevents hits in provider caches: a short line of hex at the end of the user's turn, sometimes labelled.
_SALT_LINE = re.compile(r"\n[^\S\n]*[\[(<]?(?:[\w -]{0,24}[:=#][^\S\n]*)?[0-9a-f]{8,16}[\])>]?\s*\Z", re.IGNORECASE)


class UnreadableRequest(ValueError):
    """A request that a provider answers with a 400. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request, reduced to the parts on which answers depend."""

    model: str
    text: str  # every text part of every turn, joined by blank lines
    user_text: str  # the same for the user's turns only
    images: tuple[str, ...]  # sha256 (hex) of the bytes of each image
    seed: int | None
    max_tokens: int | None
    response_format: dict[str, Any]
    is_reasoning: bool  # the request asks for a reasoning effort
    is_stream: bool
    wants_usage: bool  # a stream ends with the tokens
    fingerprint: int  # 64 bits over everything except the volatile fields

    @property
    def stable_text(self) -> str:
        """Return the user's text without a salt at its end, which is equal for all repetitions of a trial."""
        return _SALT_LINE.sub("", self.user_text)


def strip_provider(model: str) -> str:
    """Return a model name without its provider: `openai/gpt-x` and `gpt-x` are the same model."""
    return model.partition("/")[2] or model


def read_chat(body: bytes) -> ChatRequest:
    """Parse the body of POST /v1/chat/completions, or raise UnreadableRequest."""
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        raise UnreadableRequest("the body is not JSON") from None
    if not isinstance(payload, dict):
        raise UnreadableRequest("the body is not a JSON object")
    if not isinstance(payload.get("model"), str) or not payload["model"]:
        raise UnreadableRequest("you must provide a model parameter")
    if not isinstance(payload.get("messages"), list) or not payload["messages"]:
        raise UnreadableRequest("messages: expected a list with at least one message")
    if not isinstance(payload.get("stream_options") or {}, dict):
        raise UnreadableRequest("stream_options: expected an object")
    if not isinstance(payload.get("response_format") or {}, dict):
        raise UnreadableRequest("response_format: expected an object")
    turns: list[tuple[str, str]] = []
    images: list[str] = []
    for message in payload["messages"]:
        role, parts = _read_message(message, images)
        turns += [(role, part) for part in parts]
    text = "\n\n".join(part for _, part in turns)
    parameters = {name: payload[name] for name in payload if name not in VOLATILE and name != "messages"}
    canonical = json.dumps([turns, images, parameters], sort_keys=True)
    return ChatRequest(
        model=payload["model"],
        text=text,
        user_text="\n\n".join(part for role, part in turns if role == "user"),
        images=tuple(images),
        seed=payload.get("seed"),
        max_tokens=payload.get("max_completion_tokens") or payload.get("max_tokens"),
        response_format=payload.get("response_format") or {},
        is_reasoning=(payload.get("reasoning_effort") or "none") != "none",
        is_stream=bool(payload.get("stream")),
        wants_usage=bool((payload.get("stream_options") or {}).get("include_usage")),
        fingerprint=int.from_bytes(hashlib.blake2b(canonical.encode(), digest_size=8).digest()),
    )


def _read_message(message: object, images: list[str]) -> tuple[str, list[str]]:
    """Return the role and the text parts of one message. Append the hashes of its images to `images`."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise UnreadableRequest("messages: each message is an object with a role")
    content = message.get("content")
    if isinstance(content, str):
        return message["role"], [content]
    parts: list[str] = []
    for part in content if isinstance(content, list) else []:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            parts.append(str(part.get("text", "")))
        elif kind == "image_url":
            images.append(hash_image(part.get("image_url")))
        else:
            raise UnreadableRequest(f"messages: a part of type {kind!r} is not supported")
    return message["role"], parts


def hash_image(reference: object) -> str:
    """Return the sha256 (hex) of the bytes in an image_url part. Raise UnreadableRequest without a base64 data URL."""
    url = reference.get("url") if isinstance(reference, dict) else reference
    header, separator, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not separator or not header.startswith("data:image/") or not header.endswith(";base64"):
        raise UnreadableRequest("image_url: only base64 data URLs of images are supported")
    try:
        return hashlib.sha256(base64.b64decode(data)).hexdigest()
    except (binascii.Error, ValueError):
        raise UnreadableRequest("image_url: the base64 data cannot be read") from None
