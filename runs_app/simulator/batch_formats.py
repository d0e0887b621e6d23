"""The formats of batches, their calls and their result lines, for OpenAI and for Anthropic."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from runs_app.simulator.request_parser import ChatRequest
from runs_app.simulator.responses import Reply, build_completion
from runs_app.simulator.streams import build_message

DAY_S = 86_400


@dataclass(slots=True)
class Batch:
    """A submitted batch: its calls, and their results after its end."""

    id: str
    api_format: str  # openai or anthropic
    calls: list[tuple[str, bytes]]  # custom id, body in OpenAI's format
    created: float
    fault: str | None
    metadata: dict[str, str] = field(default_factory=dict)
    input_file: str = ""
    cancelled_at: float | None = None
    n_made_before_cancellation: int | None = None
    lines: list[bytes] | None = None
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def n_calls_made(self) -> int:
        """Return the number of calls that are made before the batch ends."""
        if self.n_made_before_cancellation is not None:
            return self.n_made_before_cancellation
        if self.fault in ("invalid", "full"):
            return 0
        return len(self.calls) // 2 if self.fault == "expired" else len(self.calls)


def parse_calls(
    api_format: str, payload: Mapping[str, Any], files: Mapping[str, tuple[str, bytes]]
) -> list[tuple[str, bytes]]:
    """Return (custom id, body in OpenAI's format) of each call. Raise KeyError or ValueError for invalid input."""
    if api_format == "anthropic":
        entries = [(entry["custom_id"], convert_parameters(entry["params"])) for entry in payload["requests"]]
    else:
        lines = [json.loads(line) for line in files[payload["input_file_id"]][1].splitlines() if line.strip()]
        entries = [(line["custom_id"], line["body"]) for line in lines]
    return [(name, json.dumps(body).encode()) for name, body in entries]


def convert_parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """Convert Anthropic's parameters to the parameters of a chat completion."""
    system = params.get("system") or []
    turns = [{"role": "system", "content": _convert_parts(system)}] if system else []
    turns += [{"role": turn["role"], "content": _convert_parts(turn["content"])} for turn in params["messages"]]
    chat = {"model": params["model"], "messages": turns, "max_tokens": params["max_tokens"]}
    chat |= {"stream": True} if params.get("stream") else {}
    if output := params.get("output_format"):
        chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": output["schema"]}}
    return chat


def _convert_parts(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return [_convert_image(part["source"]) if part["type"] == "image" else part for part in content]


def _convert_image(source: Mapping[str, str]) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{source['media_type']};base64,{source['data']}"}}


def format_line(
    api_format: str, name: str, status: int, chat: ChatRequest | None, received: Reply | dict[str, Any]
) -> bytes:
    """Return the result line of one call."""
    if api_format == "anthropic":
        return json.dumps({"custom_id": name, "result": _build_result(status, chat, received)}).encode()
    body = (
        json.loads(build_completion(chat, received, None))
        if chat is not None and isinstance(received, Reply)
        else received
    )
    response = {"status_code": status, "request_id": uuid.uuid4().hex, "body": body}
    return json.dumps(
        {"id": f"batch_req_{uuid.uuid4().hex}", "custom_id": name, "response": response, "error": None}
    ).encode()


def format_unmade_line(api_format: str, name: str, reason: str) -> bytes:
    """Return the result line of a call that was not made, because its batch was cancelled or expired."""
    if api_format == "anthropic":
        kind = "canceled" if reason == "cancelled" else reason
        return json.dumps({"custom_id": name, "result": {"type": kind}}).encode()
    error = {"code": f"batch_{reason}", "message": f"The batch {reason} before this call was made."}
    return json.dumps(
        {"id": f"batch_req_{uuid.uuid4().hex}", "custom_id": name, "response": None, "error": error}
    ).encode()


def is_error(line: bytes) -> bool:
    """Return whether OpenAI writes this line to the error file."""
    response = json.loads(line).get("response")
    return not response or response["status_code"] != 200


def _build_result(status: int, chat: ChatRequest | None, received: Reply | dict[str, Any]) -> dict[str, Any]:
    if chat is None or not isinstance(received, Reply):
        kind = {400: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error"}.get(status, "api_error")
        message = received["error"]["message"] if isinstance(received, dict) else ""
        return {"type": "errored", "error": {"type": "error", "error": {"type": kind, "message": message}}}
    return {"type": "succeeded", "message": build_message(chat, received)}


def build_batch(batch: Batch) -> dict[str, Any]:
    return _build_anthropic_batch(batch) if batch.api_format == "anthropic" else _build_openai_batch(batch)


def _build_openai_batch(batch: Batch) -> dict[str, Any]:
    status = _get_openai_status(batch)
    has_files = batch.lines is not None and status != "failed"
    errors = None
    if status == "failed":
        code = "token_limit_exceeded" if batch.fault == "full" else "invalid_request"
        errors = {"object": "list", "data": [{"code": code, "message": f"The batch is {batch.fault}."}]}
    return {
        "id": batch.id,
        "object": "batch",
        "status": status,
        "created_at": int(batch.created),
        "expires_at": int(batch.created) + DAY_S,
        "input_file_id": batch.input_file,
        "metadata": batch.metadata,
        "errors": errors,
        "output_file_id": f"{batch.id}-output" if has_files else None,
        "error_file_id": f"{batch.id}-errors" if has_files else None,
        "request_counts": batch.counts or {"total": len(batch.calls), "completed": 0, "failed": 0},
    }


def _get_openai_status(batch: Batch) -> str:
    if batch.cancelled_at is not None:
        return "cancelled" if batch.lines is not None else "cancelling"
    if batch.lines is None:
        return "in_progress"
    return {"invalid": "failed", "full": "failed", "expired": "expired"}.get(batch.fault or "", "completed")


def _build_anthropic_batch(batch: Batch) -> dict[str, Any]:
    is_ended = batch.lines is not None
    status = "ended" if is_ended else "canceling" if batch.cancelled_at else "in_progress"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": batch.counts or {"processing": len(batch.calls)},
        "created_at": _format_time(batch.created),
        "expires_at": _format_time(batch.created + DAY_S),
        "cancel_initiated_at": _format_time(batch.cancelled_at) if batch.cancelled_at else None,
        "results_url": f"/v1/messages/batches/{batch.id}/results" if is_ended else None,
    }


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def count_by_outcome(batch: Batch) -> dict[str, int]:
    """Return the number of calls by outcome, in the terms of the batch's format."""
    lines = [json.loads(line) for line in batch.lines or ()]
    if batch.api_format == "anthropic":
        kinds = [line["result"]["type"] for line in lines]
        return {kind: kinds.count(kind) for kind in ("succeeded", "errored", "canceled", "expired")} | {"processing": 0}
    completed = sum(bool(line["response"]) and line["response"]["status_code"] == 200 for line in lines)
    return {"total": len(batch.calls), "completed": completed, "failed": len(lines) - completed}
