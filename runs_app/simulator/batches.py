"""The batches of the simulated provider: their calls, result lines and endpoints, for OpenAI and for Anthropic."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from aiohttp import web

from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.request_counters import Counters
from runs_app.simulator.request_parser import ChatRequest
from runs_app.simulator.responses import Reply, build_completion, build_error, build_message
from runs_app.simulator.seeded_random import draw_uniforms

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

    def build(self) -> dict[str, Any]:
        return self._build_anthropic_batch() if self.api_format == "anthropic" else self._build_openai_batch()

    def _build_openai_batch(self) -> dict[str, Any]:
        status = self._get_openai_status()
        has_files = self.lines is not None and status != "failed"
        errors = None
        if status == "failed":
            code = "token_limit_exceeded" if self.fault == "full" else "invalid_request"
            errors = {"object": "list", "data": [{"code": code, "message": f"The batch is {self.fault}."}]}
        return {
            "id": self.id,
            "object": "batch",
            "status": status,
            "created_at": int(self.created),
            "expires_at": int(self.created) + DAY_S,
            "input_file_id": self.input_file,
            "metadata": self.metadata,
            "errors": errors,
            "output_file_id": f"{self.id}-output" if has_files else None,
            "error_file_id": f"{self.id}-errors" if has_files else None,
            "request_counts": self.counts or {"total": len(self.calls), "completed": 0, "failed": 0},
        }

    def _get_openai_status(self) -> str:
        if self.cancelled_at is not None:
            return "cancelled" if self.lines is not None else "cancelling"
        if self.lines is None:
            return "in_progress"
        return {"invalid": "failed", "full": "failed", "expired": "expired"}.get(self.fault or "", "completed")

    def _build_anthropic_batch(self) -> dict[str, Any]:
        is_ended = self.lines is not None
        status = "ended" if is_ended else "canceling" if self.cancelled_at else "in_progress"
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": self.counts or {"processing": len(self.calls)},
            "created_at": _format_time(self.created),
            "expires_at": _format_time(self.created + DAY_S),
            "cancel_initiated_at": _format_time(self.cancelled_at) if self.cancelled_at else None,
            "results_url": f"/v1/messages/batches/{self.id}/results" if is_ended else None,
        }

    def count_by_outcome(self) -> dict[str, int]:
        """Return the number of calls by outcome, in the terms of the batch's format."""
        lines = [json.loads(line) for line in self.lines or ()]
        if self.api_format == "anthropic":
            kinds = [line["result"]["type"] for line in lines]
            return {kind: kinds.count(kind) for kind in ("succeeded", "errored", "canceled", "expired")} | {
                "processing": 0
            }
        completed = sum(bool(line["response"]) and line["response"]["status_code"] == 200 for line in lines)
        return {"total": len(self.calls), "completed": completed, "failed": len(lines) - completed}


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


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


MAX_PAGE_ROWS = 100
CANCEL_S = 0.2  # Seconds between a cancellation and its end.


class ChatServer(Protocol):
    """The parts of the simulator that batches use."""

    config: SimulatorConfig
    counters: Counters

    def find_refusal(self, request: web.Request) -> web.Response | None: ...

    async def answer_one(self, body: bytes) -> tuple[int, ChatRequest | None, Reply | dict[str, object]]: ...


class BatchStore:
    """Files and batches of one simulator, in memory."""

    def __init__(self, simulator: ChatServer) -> None:
        self._simulator = simulator
        self._files: dict[str, tuple[str, bytes]] = {}
        self._batches: dict[str, Batch] = {}
        self._n_draws = 0

    def reset(self) -> None:
        """Delete all files and batches, so that no earlier batch is answered or counted after a reset."""
        self._files.clear()
        self._batches.clear()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        for path, api_format in (("/v1/batches", "openai"), ("/v1/messages/batches", "anthropic")):
            router.add_post(path, self._add_access_check(self.create, api_format))
            router.add_get(path, self._add_access_check(self.list_batches, api_format))
            router.add_get(f"{path}/{{id}}", self._add_access_check(self.show, api_format))
            router.add_post(f"{path}/{{id}}/cancel", self._add_access_check(self.cancel, api_format))
        router.add_get("/v1/messages/batches/{id}/results", self._add_access_check(self.results, "anthropic"))
        router.add_post("/v1/files", self._add_access_check(self.upload, "openai"))
        router.add_get("/v1/files", self._add_access_check(self.list_files, "openai"))
        router.add_get("/v1/files/{id}/content", self._add_access_check(self.results, "openai"))

    def _add_access_check(self, handler: Callable[..., Any], api_format: str) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            if refusal := self._simulator.find_refusal(request):
                return refusal
            answer: web.StreamResponse = await handler(request, api_format)
            return answer

        return handle

    async def upload(self, request: web.Request, _form: str) -> web.StreamResponse:
        """Handle POST /v1/files."""
        data = await request.post()
        file = data.get("file")
        if not isinstance(file, web.FileField) or data.get("purpose") != "batch":
            return web.json_response(build_error(400, "a file with the purpose batch is required"), status=400)
        key = f"file-{uuid.uuid4().hex}"
        self._files[key] = (file.filename, file.file.read())
        if self._has_fault("lost_upload"):
            return await _close_connection(request)
        return web.json_response(self._describe_file(key))

    async def list_files(self, request: web.Request, _form: str) -> web.StreamResponse:
        """Handle GET /v1/files."""
        return _build_page(request, [self._describe_file(key) for key in reversed(self._files)], "after")

    async def create(self, request: web.Request, api_format: str) -> web.StreamResponse:
        """Create a batch from a file, or from the calls in the body."""
        payload = json.loads(await request.read())
        await self._wait("create")
        try:
            calls = parse_calls(api_format, payload, self._files)
        except (KeyError, ValueError, TypeError) as error:
            return web.json_response(build_error(400, f"the batch cannot be read: {error!r}"), status=400)
        now = time.time()
        fault = next((name for name in ("invalid", "full", "expired", "missing") if self._has_fault(name)), None)
        batch = Batch(
            id=f"{'batch' if api_format == 'openai' else 'msgbatch'}_{uuid.uuid4().hex}",
            api_format=api_format,
            calls=calls,
            created=now,
            fault=fault,
            metadata=payload.get("metadata") or {},
            input_file=payload.get("input_file_id", ""),
        )
        self._batches[batch.id] = batch
        self._simulator.counters.batches += 1
        self._simulator.counters.batch_calls += len(calls)
        await self._wait("answer")
        if self._has_fault("lost_submission"):
            return await _close_connection(request)
        return web.json_response(batch.build())

    async def list_batches(self, request: web.Request, api_format: str) -> web.StreamResponse:
        """List all batches of this format, newest first."""
        batches = [batch for batch in reversed(self._batches.values()) if batch.api_format == api_format]
        for batch in batches:
            await self._finish(batch)
        return _build_page(
            request, [batch.build() for batch in batches], "after" if api_format == "openai" else "after_id"
        )

    async def show(self, request: web.Request, _form: str) -> web.StreamResponse:
        batch = self._batches.get(request.match_info["id"])
        if batch is None:
            return web.json_response(build_error(404, "No such batch."), status=404)
        await self._finish(batch)
        return web.json_response(batch.build())

    async def cancel(self, request: web.Request, api_format: str) -> web.StreamResponse:
        """Cancel a batch. Calls that are already due are made; the others are not."""
        batch = self._batches.get(request.match_info["id"])
        if batch is None or self._is_ended(batch) or batch.cancelled_at:
            return await self.show(request, api_format)
        now = time.time()
        share = (now - batch.created) / max(self._get_wait_s("done"), 1e-6)
        batch.n_made_before_cancellation = int(len(batch.calls) * share)
        batch.cancelled_at = now
        return web.json_response(batch.build())

    async def results(self, request: web.Request, api_format: str) -> web.StreamResponse:
        """Stream the result lines of a batch."""
        name = request.match_info["id"].removesuffix("-output").removesuffix("-errors")
        batch = self._batches.get(name)
        if batch is None or not self._is_ended(batch):
            return web.json_response(build_error(404, "There are no results."), status=404)
        await self._finish(batch)
        wants_errors = request.match_info["id"].endswith("-errors")
        response = web.StreamResponse(headers={"Content-Type": "application/x-jsonl"})
        await response.prepare(request)
        lines = batch.lines or []
        for number, line in enumerate(lines):
            if number == len(lines) // 2:
                await self._wait("half")
            if api_format == "anthropic" or is_error(line) == wants_errors:
                await self._wait("line")
                await response.write(line + b"\n")
        return response

    async def _finish(self, batch: Batch) -> None:
        """Make the calls of a batch after its wait."""
        if batch.lines is not None or not self._is_ended(batch):
            return
        batch.lines = []
        for number, (name, body) in enumerate(batch.calls):
            if batch.fault in ("invalid", "full"):
                break
            if number < batch.n_calls_made:
                line = format_line(batch.api_format, name, *await self._simulator.answer_one(body))
            else:
                line = format_unmade_line(batch.api_format, name, "cancelled" if batch.cancelled_at else "expired")
            if batch.fault != "missing" or number % 2:
                batch.lines.append(line)
        batch.counts = batch.count_by_outcome()

    def _is_ended(self, batch: Batch) -> bool:
        """Return whether the batch has ended, by the current wait. A shorter wait also ends batches in progress."""
        end = batch.created + self._get_wait_s("done") if batch.cancelled_at is None else batch.cancelled_at + CANCEL_S
        return batch.lines is not None or time.time() >= end

    def _describe_file(self, key: str) -> dict[str, Any]:
        name, content = self._files[key]
        return {"id": key, "object": "file", "filename": name, "bytes": len(content), "purpose": "batch"}

    def _has_fault(self, fault: str) -> bool:
        rate = self._simulator.config.batch_faults.get(fault, 0.0)
        if not rate:
            return False
        self._n_draws += 1
        if draw_uniforms("batch", self._simulator.config.seed, fault, self._n_draws)[0] >= rate:
            return False
        self._simulator.counters.faults[fault] += 1
        return True

    def _get_wait_s(self, wait: str) -> float:
        return self._simulator.config.batch_waits.get(wait, 0.0)

    async def _wait(self, wait: str) -> None:
        if seconds := self._get_wait_s(wait):
            await asyncio.sleep(seconds)


def _build_page(request: web.Request, rows: list[dict[str, Any]], cursor: str) -> web.Response:
    """Return a page of a list, newest first, after the given id."""
    after, limit = request.query.get(cursor), min(int(request.query.get("limit", 20)), MAX_PAGE_ROWS)
    names = [row["id"] for row in rows]
    begin = names.index(after) + 1 if after in names else 0
    return web.json_response({"data": rows[begin : begin + limit], "has_more": begin + limit < len(rows)})


async def _close_connection(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()
    return web.StreamResponse()
