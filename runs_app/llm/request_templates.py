"""Request templates: litellm shapes one request of a condition, and the texts of the other requests are filled in.

The requests of a condition differ only in the texts and images of their messages. To find the places of these, litellm
shapes a request with a marker in each place. The template is used only if it yields, byte by byte, what litellm makes
of the first real request; every CHECK_EVERY-th request is compared again. Otherwise litellm shapes each request.
"""

from __future__ import annotations

import base64
import itertools
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from runs_app.llm.calls import CallFailure, CallRequest, ImageURL

logger = logging.getLogger("evalsite.drain")

MAX_TEMPLATES = 512
CHECK_EVERY = 256
_IMAGE = re.compile(r"data:image/[\w.+-]+;base64,")

Places = tuple[Any, ...]
Text = bytes | memoryview  # As in JSON. That of an image is not copied until the body is joined.


def _make_marker(number: int, *, is_image: bool = False) -> str:
    text = f"slot9f2c7e41x{number:04}"
    return base64.b64encode(text.encode()).decode() if is_image else text


@dataclass(frozen=True, slots=True)
class ShapedRequest:
    """A request as it goes to the provider. Its headers contain the key."""

    url: str
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


Shape = Callable[[CallRequest, str], Awaitable[ShapedRequest | None]]


@dataclass(slots=True)
class Template:
    """A shaped request with places for texts. `pieces` are the parts of its body, `places` the texts between them."""

    url: str
    headers: dict[str, str] = field(repr=False)
    pieces: list[bytes] = field(repr=False)
    places: list[int]
    n_filled: int = 0

    def fill(self, texts: list[Text]) -> ShapedRequest:
        """Return the request with these texts, which are written as in JSON."""
        parts: list[Text] = [self.pieces[0]]
        for place, piece in zip(self.places, self.pieces[1:], strict=True):
            parts += texts[place], piece
        return ShapedRequest(self.url, self.headers, b"".join(parts))


class RequestTemplates:
    """The templates of a process, by everything of a request but its texts. None: litellm must shape these requests."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._templates: OrderedDict[Places, Template | None] = OrderedDict()

    async def shape(self, request: CallRequest, key: str) -> ShapedRequest | None:
        """Return the request with this key as litellm would send it, or None if litellm must send it itself.

        Raise what `shape` raises for a request that cannot be shaped.
        """
        split = split_messages(request.messages)
        if split is None:
            return None
        places, texts = split
        identity = (
            request.provider,
            request.model,
            request.base_url,
            key,
            json.dumps(request.parameters),
            json.dumps(request.response_format),
            request.max_output_tokens,
            places,
        )
        if identity not in self._templates:
            self._store(identity, await self._build(request, key, texts))
        template = self._templates.get(identity)
        if template is None:
            return None
        self._templates.move_to_end(identity)
        filled = template.fill(texts)
        template.n_filled += 1
        if template.n_filled % CHECK_EVERY == 0 and await self._shape(request, key) != filled:
            logger.error("requests of %s at %s are shaped by litellm again", request.model, request.provider)
            self._store(identity, None)
            return None
        return filled

    def _store(self, identity: Places, template: Template | None) -> None:
        self._templates[identity] = template
        while len(self._templates) > MAX_TEMPLATES:
            self._templates.popitem(last=False)

    async def _build(self, request: CallRequest, key: str, texts: list[Text]) -> Template | None:
        """Return a template that holds for this request, or None."""
        shaped = await self._shape(request, key)
        marked = replace(request, messages=_mark_places(request.messages))
        try:
            with_markers = await self._shape(marked, key)
        except CallFailure:  # Only the markers are at fault: the request itself could be shaped.
            return None
        template = find_places(with_markers, len(texts)) if shaped and with_markers else None
        return template if template is not None and template.fill(texts) == shaped else None


def split_messages(messages: list[dict[str, Any]]) -> tuple[Places, list[Text]] | None:
    """Return the structure of the messages and their texts, or None for unusual ones.

    The texts are written as in JSON. That of an image is its data. Blank texts are unusual: some adapters drop them.
    """
    places: list[Any] = []
    texts: list[Text] = []
    for message in messages:
        content = message.get("content")
        if len(message) != 2 or content is None:
            return None
        if isinstance(content, str):
            if not content or content.isspace():
                return None
            places.append(message["role"])
            texts.append(_write_text(content))
            continue
        parts: list[Any] = []
        for part in content:
            split = _split_part(part)
            if split is None:
                return None
            parts.append(split[0])
            texts.append(split[1])
        places.append((message["role"], *parts))
    return (tuple(places), texts) if texts else None


def _split_part(part: dict[str, Any]) -> tuple[Any, Text] | None:
    """Return the structure of a part of a message, and its text or the data of its image as in JSON, or None."""
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        mark, text = part.get("cache_control"), part["text"]
        is_usual = len(part) == (2 if mark is None else 3) and text and not text.isspace()
        return (("text", json.dumps(mark)), _write_text(text)) if is_usual else None
    image = part.get("image_url")
    if part.get("type") == "image_url" and len(part) == 2 and isinstance(image, dict) and image.keys() == {"url"}:
        url = image["url"]
        prefix = _IMAGE.match(url)
        if prefix and len(url) > prefix.end():
            is_plain = isinstance(url, ImageURL)
            return ("image", prefix[0]), (
                memoryview(url.encode())[prefix.end() :] if is_plain else _write_text(url[prefix.end() :])
            )
    return None


def _write_text(text: str) -> bytes:
    """Return the text as JSON writes it, without quotes."""
    return json.dumps(text)[1:-1].encode()


def _mark_places(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with a marker for each text, numbered in the order of `split_messages`."""
    numbers = itertools.count()

    def mark_part(part: dict[str, Any]) -> dict[str, Any]:
        if part["type"] == "text":
            return {**part, "text": _make_marker(next(numbers))}
        prefix = part["image_url"]["url"].partition(",")[0]
        return {**part, "image_url": {"url": f"{prefix},{_make_marker(next(numbers), is_image=True)}"}}

    return [
        {**message, "content": _make_marker(next(numbers))}
        if isinstance(message["content"], str)
        else {**message, "content": [mark_part(part) for part in message["content"]]}
        for message in messages
    ]


def find_places(shaped: ShapedRequest, n_texts: int) -> Template | None:
    """Return the template of a request with markers, or None unless each marker is in its body and nowhere else."""
    body = shaped.body.decode()
    markers = {_make_marker(n, is_image=is_image): n for n in range(n_texts) for is_image in (False, True)}
    pattern = re.compile("|".join(map(re.escape, markers)))
    order = [markers[marker] for marker in pattern.findall(body)]
    elsewhere = f"{shaped.url} {shaped.headers}"
    if set(order) != set(range(n_texts)) or any(marker in elsewhere for marker in markers):
        return None
    return Template(shaped.url, shaped.headers, [piece.encode() for piece in pattern.split(body)], order)
