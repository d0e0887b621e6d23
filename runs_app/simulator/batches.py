"""The batch endpoints of the simulated provider, in the formats of OpenAI and Anthropic."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import web

from runs_app.simulator import batch_formats as forms
from runs_app.simulator.batch_formats import Batch
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.faults import build_error
from runs_app.simulator.request_counters import Counters
from runs_app.simulator.request_parser import ChatRequest
from runs_app.simulator.responses import Reply
from runs_app.simulator.seeded_random import draw_uniforms

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
            calls = forms.parse_calls(api_format, payload, self._files)
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
        return web.json_response(forms.build_batch(batch))

    async def list_batches(self, request: web.Request, api_format: str) -> web.StreamResponse:
        """List all batches of this format, newest first."""
        batches = [batch for batch in reversed(self._batches.values()) if batch.api_format == api_format]
        for batch in batches:
            await self._finish(batch)
        return _build_page(
            request, [forms.build_batch(batch) for batch in batches], "after" if api_format == "openai" else "after_id"
        )

    async def show(self, request: web.Request, _form: str) -> web.StreamResponse:
        batch = self._batches.get(request.match_info["id"])
        if batch is None:
            return web.json_response(build_error(404, "No such batch."), status=404)
        await self._finish(batch)
        return web.json_response(forms.build_batch(batch))

    async def cancel(self, request: web.Request, api_format: str) -> web.StreamResponse:
        """Cancel a batch. Calls that are already due are made; the others are not."""
        batch = self._batches.get(request.match_info["id"])
        if batch is None or self._is_ended(batch) or batch.cancelled_at:
            return await self.show(request, api_format)
        now = time.time()
        share = (now - batch.created) / max(self._get_wait_s("done"), 1e-6)
        batch.n_made_before_cancellation = int(len(batch.calls) * share)
        batch.cancelled_at = now
        return web.json_response(forms.build_batch(batch))

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
            if api_format == "anthropic" or forms.is_error(line) == wants_errors:
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
                line = forms.format_line(batch.api_format, name, *await self._simulator.answer_one(body))
            else:
                line = forms.format_unmade_line(
                    batch.api_format, name, "cancelled" if batch.cancelled_at else "expired"
                )
            if batch.fault != "missing" or number % 2:
                batch.lines.append(line)
        batch.counts = forms.count_by_outcome(batch)

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
