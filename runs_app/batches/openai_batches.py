"""OpenAI's batch API: a file is uploaded, a batch is created from it, and its results are files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

import aiohttp

from runs_app.batches.http_client import ApiClient, parse_counts, parse_object, require_id
from runs_app.batches.protocol import BatchFile, Line, Phase, State, SubmissionSearch
from runs_app.llm.calls import RequestBody

COMPLETIONS_PATH = "/v1/chat/completions"
METADATA_KEY = "evalsite_batch"
MAX_PAGES = 100
CLOCK_TOLERANCE_S = 3600.0  # The provider's clock may be wrong by this much.
PHASES = {
    "completed": Phase.ENDED,
    "failed": Phase.FAILED,
    "expired": Phase.EXPIRED,
    "cancelled": Phase.CANCELLED,
}
UNMADE_CALL_CODES = {"batch_expired": "expired", "batch_cancelled": "cancelled"}


class OpenAiBatches:
    """The batches of one account."""

    max_bytes = 190 * 10**6  # The provider accepts 200 MB.
    opening, separator, closing = b"", b"\n", b"\n"

    def __init__(self, url: str, key: str) -> None:
        self._client = ApiClient(url, key, {"Authorization": f"Bearer {key}"})

    def build_entry(self, custom_id: str, body: RequestBody) -> dict[str, Any]:
        return {"custom_id": custom_id, "method": "POST", "url": COMPLETIONS_PATH, "body": body.body}

    async def upload(self, file: BatchFile, key: UUID, *, may_exist: bool) -> str:
        name = f"evalsite-{key.hex}.jsonl"
        if may_exist and (file_id := await self._find_file(name)):
            return file_id
        form = aiohttp.FormData()
        form.add_field("purpose", "batch")
        with file.open() as body:
            form.add_field("file", body, filename=name, content_type="application/jsonl")
            reply = require_id(await self._client.post("/files", data=form))
        return _read_text(reply["id"], 200)

    async def create(self, file: BatchFile | None, input_file: str, key: UUID) -> State:
        request = {
            "input_file_id": input_file,
            "endpoint": COMPLETIONS_PATH,
            "completion_window": "24h",
            "metadata": {METADATA_KEY: key.hex},
        }
        return parse_state(require_id(await self._client.post("/batches", json=request)))

    async def find(self, search: SubmissionSearch) -> State | None:
        async for batch in self._iter_rows("/batches?limit=100"):
            metadata = batch.get("metadata")
            if isinstance(metadata, dict) and metadata.get(METADATA_KEY) == search.key.hex:
                return parse_state(batch)
            created = _parse_time(batch.get("created_at"))
            if created is not None and (search.since - created).total_seconds() > CLOCK_TOLERANCE_S:
                return None
        return None

    async def retrieve(self, provider_id: str) -> State:
        return parse_state(await self._client.get(f"/batches/{quote(provider_id, safe='')}"))

    async def cancel(self, provider_id: str) -> State:
        return parse_state(await self._client.post(f"/batches/{quote(provider_id, safe='')}/cancel"))

    async def iter_lines(self, provider_id: str, files: list[str]) -> AsyncIterator[Line]:
        for file in files:
            async for line in self._client.iter_lines(f"/files/{quote(file, safe='')}/content"):
                if payload := parse_object(line):
                    yield parse_line(payload)

    async def _find_file(self, name: str) -> str:
        async for file in self._iter_rows("/files?purpose=batch&limit=100"):
            if file.get("filename") == name:
                return _read_text(file.get("id"), 200)
        return ""

    async def _iter_rows(self, path: str) -> AsyncIterator[dict[str, Any]]:
        """Yield all rows of a list, newest first."""
        after = ""
        for _ in range(MAX_PAGES):
            page = await self._client.get(path + after)
            rows = [row for row in page.get("data") or () if isinstance(row, dict)]
            for row in rows:
                yield row
            if not (page.get("has_more") and rows):
                return
            after = f"&after={quote(str(rows[-1].get('id')), safe='')}"


def parse_state(batch: dict[str, Any]) -> State:
    """Return the state in a batch object."""
    status_name = _read_text(batch.get("status"), 40)
    files = [batch.get(name) for name in ("output_file_id", "error_file_id")]
    errors = batch.get("errors")
    rows = errors.get("data") if isinstance(errors, dict) else None
    problems = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return State(
        provider_id=_read_text(batch.get("id"), 200),
        phase=PHASES.get(status_name, Phase.WORKING),
        status_name=status_name,
        counts=parse_counts(batch.get("request_counts")),
        files=[_read_text(file, 200) for file in files if file],
        expires_at=_parse_time(batch.get("expires_at")),
        problem="; ".join(_read_text(problem.get("message") or problem.get("code"), 300) for problem in problems),
        is_full=any(problem.get("code") in ("token_limit_exceeded", "rate_limit_exceeded") for problem in problems),
    )


def parse_line(payload: dict[str, Any]) -> Line:
    """Return a line of an output or error file."""
    name = _read_text(payload.get("custom_id"), 64)
    response, error = payload.get("response"), payload.get("error")
    status = response.get("status_code") if isinstance(response, dict) else None
    if isinstance(response, dict) and isinstance(status, int) and status:
        return Line(name, status, json.dumps(response.get("body")).encode())
    code = _read_text(error.get("code"), 40) if isinstance(error, dict) else ""
    if code in UNMADE_CALL_CODES:
        return Line(name, None, code=UNMADE_CALL_CODES[code])
    return Line(name, 500, json.dumps({"error": error}).encode())


def _read_text(value: Any, max_chars: int) -> str:
    return value[:max_chars] if isinstance(value, str) else ""


def _parse_time(value: Any) -> datetime | None:
    is_time = isinstance(value, int | float) and 0 < value < 2**33
    return datetime.fromtimestamp(value, UTC) if is_time else None
