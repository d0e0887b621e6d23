"""The batch API of OpenAI: a file is uploaded, a batch is made of it, and its results are files."""

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

ADDRESS = "/v1/chat/completions"
OUR_KEY = "evalsite_batch"
MOST_PAGES = 100
SLACK_S = 3600.0  # A provider's clock may be wrong by this.
PHASES = {
    "completed": Phase.ENDED,
    "failed": Phase.FAILED,
    "expired": Phase.EXPIRED,
    "cancelled": Phase.CANCELLED,
}
NEVER_MADE = {"batch_expired": "expired", "batch_cancelled": "cancelled"}


class OpenAiBatches:
    """The batches of one account."""

    most_bytes = 190 * 10**6  # Of the 200 MB that the provider accepts.
    opening, separator, closing = b"", b"\n", b"\n"

    def __init__(self, url: str, key: str) -> None:
        self._door = ApiClient(url, key, {"Authorization": f"Bearer {key}"})

    def entry(self, custom_id: str, body: RequestBody) -> dict[str, Any]:
        return {"custom_id": custom_id, "method": "POST", "url": ADDRESS, "body": body.body}

    async def upload(self, package: BatchFile, key: UUID, *, again: bool) -> str:
        name = f"evalsite-{key.hex}.jsonl"
        if again and (found := await self._file_named(name)):
            return found
        form = aiohttp.FormData()
        form.add_field("purpose", "batch")
        with package.open() as file:
            form.add_field("file", file, filename=name, content_type="application/jsonl")
            reply = require_id(await self._door.post("/files", data=form))
        return _text(reply["id"], 200)

    async def create(self, package: BatchFile | None, input_file: str, key: UUID) -> State:
        asked = {
            "input_file_id": input_file,
            "endpoint": ADDRESS,
            "completion_window": "24h",
            "metadata": {OUR_KEY: key.hex},
        }
        return parse_state(require_id(await self._door.post("/batches", json=asked)))

    async def find(self, search: SubmissionSearch) -> State | None:
        async for batch in self._pages("/batches?limit=100"):
            metadata = batch.get("metadata")
            if isinstance(metadata, dict) and metadata.get(OUR_KEY) == search.key.hex:
                return parse_state(batch)
            if _is_before(batch.get("created_at"), search.since):
                return None
        return None

    async def retrieve(self, provider_id: str) -> State:
        return parse_state(await self._door.get(f"/batches/{quote(provider_id, safe='')}"))

    async def cancel(self, provider_id: str) -> State:
        return parse_state(await self._door.post(f"/batches/{quote(provider_id, safe='')}/cancel"))

    async def lines(self, provider_id: str, files: list[str]) -> AsyncIterator[Line]:
        for file in files:
            async for line in self._door.lines(f"/files/{quote(file, safe='')}/content"):
                if found := parse_object(line):
                    yield parse_line(found)

    async def _file_named(self, name: str) -> str:
        async for file in self._pages("/files?purpose=batch&limit=100"):
            if file.get("filename") == name:
                return _text(file.get("id"), 200)
        return ""

    async def _pages(self, path: str) -> AsyncIterator[dict[str, Any]]:
        """Yield all rows of a list, newest first."""
        after = ""
        for _ in range(MOST_PAGES):
            page = await self._door.get(path + after)
            rows = [row for row in page.get("data") or () if isinstance(row, dict)]
            for row in rows:
                yield row
            if not (page.get("has_more") and rows):
                return
            after = f"&after={quote(str(rows[-1].get('id')), safe='')}"


def parse_state(batch: dict[str, Any]) -> State:
    """Return the state that a batch object reports."""
    status_name = _text(batch.get("status"), 40)
    files = [batch.get(name) for name in ("output_file_id", "error_file_id")]
    problems = _problems(batch)
    return State(
        provider_id=_text(batch.get("id"), 200),
        phase=PHASES.get(status_name, Phase.WORKING),
        status_name=status_name,
        counts=parse_counts(batch.get("request_counts")),
        files=[_text(file, 200) for file in files if file],
        expires_at=_time(batch.get("expires_at")),
        problem="; ".join(_text(one.get("message") or one.get("code"), 300) for one in problems),
        is_full=any(one.get("code") in ("token_limit_exceeded", "rate_limit_exceeded") for one in problems),
    )


def parse_line(found: dict[str, Any]) -> Line:
    """Return a line of an output or error file."""
    name = _text(found.get("custom_id"), 64)
    response, error = found.get("response"), found.get("error")
    status = response.get("status_code") if isinstance(response, dict) else None
    if isinstance(response, dict) and isinstance(status, int) and status:
        return Line(name, status, json.dumps(response.get("body")).encode())
    code = _text(error.get("code"), 40) if isinstance(error, dict) else ""
    if code in NEVER_MADE:
        return Line(name, None, code=NEVER_MADE[code])
    return Line(name, 500, json.dumps({"error": error}).encode())


def _problems(batch: dict[str, Any]) -> list[dict[str, Any]]:
    errors = batch.get("errors")
    found = errors.get("data") if isinstance(errors, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _text(value: Any, longest: int) -> str:
    return value[:longest] if isinstance(value, str) else ""


def _time(value: Any) -> datetime | None:
    is_time = isinstance(value, int | float) and 0 < value < 2**33
    return datetime.fromtimestamp(value, UTC) if is_time else None


def _is_before(created: Any, moment: datetime) -> bool:
    made = _time(created)
    return made is not None and (moment - made).total_seconds() > SLACK_S
