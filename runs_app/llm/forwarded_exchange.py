"""Requests of other programs, passed on to a provider: one request, whole or streamed, by the rules of the transport.

Calls of one event loop share connections. The reply is passed on without keys, and read for its text, its tokens and
its cost.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import aiohttp

from runs_app.llm.answers import ProviderAnswer, TokenCounts
from runs_app.llm.calls import CallFailure, CallReply, CallRequest, ErrorClass
from runs_app.llm.http_transport import MAX_REPLY_BYTES, Exchange, ReplyTooLong
from runs_app.llm.keys import redact_body
from runs_app.llm.replies import add_bill, read_reply

EVENT_STREAM = "text/event-stream"
STOP_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "refusal": "content_filter"}


class ForwardedExchange(Exchange):
    """One request whose reply is passed on while it arrives, in whole lines. `pieces` ends with None, whatever happens.

    `head_arrived` is set when the head of the reply is there, or the call has failed.
    """

    def __init__(self, request: CallRequest, key: str) -> None:
        super().__init__(request, key)
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.head_arrived = asyncio.Event()
        self.content_type = "application/json"
        self.started = time.perf_counter()

    @property
    def is_stream(self) -> bool:
        return self.content_type == EVENT_STREAM

    def get_elapsed_ms(self) -> int:
        return round((time.perf_counter() - self.started) * 1000)

    async def make(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send the request and receive the reply. `failure` has the reason if that failed."""
        try:
            await self.send(url, body, headers)
        except CallFailure:
            pass
        finally:
            self.head_arrived.set()

    async def _receive(self, reply: aiohttp.ClientResponse, secrets: list[str]) -> None:
        self.content_type = reply.content_type
        if reply.status != 200 or not self.is_stream:
            await super()._receive(reply, secrets)
            self.pieces.put_nowait(self.body)
            return
        self.status = reply.status
        self.head_arrived.set()
        waiting, size = b"", 0
        received: list[bytes] = []
        try:
            async for chunk in reply.content.iter_any():
                size += len(chunk)
                if size > MAX_REPLY_BYTES:
                    raise ReplyTooLong(f"the reply is longer than {MAX_REPLY_BYTES // 2**20} MB")
                lines, newline, waiting = (waiting + chunk).rpartition(b"\n")
                if newline:  # Only whole lines are passed on, so that a key is never cut.
                    received.append(redact_body(lines + newline, secrets))
                    self.pieces.put_nowait(received[-1])
        finally:
            received.append(redact_body(waiting, secrets))
            self.pieces.put_nowait(received[-1])
            self.body = b"".join(received)


def read_forwarded(exchange: ForwardedExchange, form: str) -> CallReply:
    """Return the reply of an exchange that has ended. Raise CallFailure if there is none."""
    request = exchange.request
    raw = exchange.body
    try:
        if exchange.is_stream and exchange.status == 200:
            payload, is_complete = (_join_openai if form == "openai" else _join_anthropic)(_list_events(raw))
            if exchange.failure is not None or not is_complete:
                payload = {}  # Its counts are those of the start of the stream, so the cost is unknown.
            exchange.body = json.dumps(payload).encode()
            if exchange.failure is None and not is_complete:
                raise exchange.build_failure(ErrorClass.CONNECTION, "the stream ended before its last event")
        if exchange.failure is not None:
            raise exchange.failure
        if exchange.status != 200:
            raise exchange.get_failure(ValueError("an error status"))
        answer = (read_openai if form == "openai" else read_anthropic)(exchange.payload)
        return read_reply(request, answer, exchange, exchange.get_elapsed_ms(), _know_no_list_price)
    except CallFailure as failure:
        failure.latency_ms, failure.trace_id = exchange.get_elapsed_ms(), exchange.trace_id
        raise add_bill(request, failure, exchange, _know_no_list_price) from None
    finally:
        exchange.body = raw


def _know_no_list_price(request: CallRequest, usage: Any) -> None:
    """Return None: litellm's list takes seconds to import. The model's own prices, or a stated cost, count."""


def read_openai(payload: Mapping[str, Any]) -> ProviderAnswer | None:
    """Return the answer in a chat completion, or None without one."""
    choice = _get_first(payload.get("choices"))
    message = choice.get("message")
    if not isinstance(message, dict):
        return None
    usage = _get_mapping(payload.get("usage"))
    return ProviderAnswer(
        content=_get_text(message.get("content")),
        refusal=_get_text(message.get("refusal")),
        reasoning=_get_text(message.get("reasoning_content") or message.get("reasoning")),
        finish_reason=choice.get("finish_reason"),
        model=payload.get("model"),
        counts=TokenCounts(
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
            _get_mapping(usage.get("completion_tokens_details")).get("reasoning_tokens"),
            _get_mapping(usage.get("prompt_tokens_details")).get("cached_tokens"),
        ),
        usage=usage,
    )


def read_anthropic(payload: Mapping[str, Any]) -> ProviderAnswer | None:
    """Return the answer in a message of Anthropic's API, or None without one."""
    blocks = payload.get("content")
    if not isinstance(blocks, list):
        return None
    blocks = [block for block in blocks if isinstance(block, dict)]
    usage = _get_mapping(payload.get("usage"))
    read, written = (usage.get(f"cache_{kind}_input_tokens") or 0 for kind in ("read", "creation"))
    n_input = usage.get("input_tokens")
    reason = payload.get("stop_reason")
    return ProviderAnswer(
        content="".join(_get_text(block.get("text")) for block in blocks if block.get("type") == "text"),
        refusal="",
        reasoning="".join(_get_text(block.get("thinking")) for block in blocks),
        finish_reason=STOP_REASONS.get(str(reason), reason),
        model=payload.get("model"),
        counts=TokenCounts(
            n_input + read + written if isinstance(n_input, int) else None,
            usage.get("output_tokens"),
            None,
            read,
            written,
        ),
        usage=usage,
    )


def _list_events(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a stream of server-sent events, and {} for its end mark."""
    for line in body.splitlines():
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        try:
            event = {} if data == b"[DONE]" else json.loads(data)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


def _join_openai(events: Iterator[dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """Return the chat completion that the chunks of a stream make, and whether the stream was complete.

    Only the first of several completions is joined. The tokens cover all of them.
    """
    payload: dict[str, Any] = {}
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    finish_reason: Any = None
    was_closed = False
    for event in events:
        was_closed = was_closed or not event
        payload |= {name: event[name] for name in ("id", "model", "usage", "error", "provider") if event.get(name)}
        choice = _get_first(event.get("choices"))
        delta = _get_mapping(choice.get("delta"))
        if choice.get("index", 0) != 0:
            continue
        for name in ("content", "refusal", "reasoning_content", "reasoning"):
            if text := _get_text(delta.get(name)):
                message[name] = message.get(name, "") + text
        finish_reason = choice.get("finish_reason") or finish_reason
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return payload | {"choices": [choice]}, was_closed or finish_reason is not None


def _join_anthropic(events: Iterator[dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """Return the message that the events of a stream make, and whether the stream was complete."""
    payload: dict[str, Any] = {"content": [], "usage": {}}
    texts = {"text": "", "thinking": ""}
    is_complete = False
    for event in events:
        kind = event.get("type")
        if kind == "message_start":
            message = _get_mapping(event.get("message"))
            payload |= {name: message[name] for name in ("id", "model") if name in message}
            payload["usage"] |= _get_mapping(message.get("usage"))
        elif kind == "content_block_delta":
            delta = _get_mapping(event.get("delta"))
            for name in texts:
                texts[name] += _get_text(delta.get(name))
        elif kind == "message_delta":
            payload["stop_reason"] = _get_mapping(event.get("delta")).get("stop_reason")
            payload["usage"] |= _get_mapping(event.get("usage"))
        elif kind == "error":
            payload["error"] = event.get("error")
        is_complete = is_complete or kind == "message_stop"
    payload["content"] = [{"type": name, name: text} for name, text in texts.items() if text]
    return payload, is_complete or "error" in payload


def _get_first(values: Any) -> dict[str, Any]:
    return values[0] if isinstance(values, list) and values and isinstance(values[0], dict) else {}


def _get_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _get_text(value: Any) -> str:
    return value if isinstance(value, str) else ""
