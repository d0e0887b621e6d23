"""Anthropic's batch API. The body of the submission has the calls; the results are one stream of lines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

from runs_app.batches.http_client import ApiClient, parse_counts, parse_object, require_id
from runs_app.batches.protocol import AmbiguousSubmission, BatchFile, Line, Phase, State, SubmissionSearch
from runs_app.llm.calls import CallFailure, ErrorClass, RequestBody

PATH = "/v1/messages/batches"
VERSION = "2023-06-01"
MAX_PAGES, PAGE_SIZE = 100, 1000
CLOCK_TOLERANCE = timedelta(hours=1)  # The provider's clock may be wrong by this much.
STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class AnthropicBatches:
    """The message batches of one account."""

    max_bytes = 240 * 10**6  # The provider accepts 256 MB.
    opening, separator, closing = b'{"requests":[', b",", b"]}"

    def __init__(self, url: str, key: str) -> None:
        self._client = ApiClient(url.removesuffix("/v1"), key, {"x-api-key": key, "anthropic-version": VERSION})

    def build_entry(self, custom_id: str, body: RequestBody) -> dict[str, Any]:
        return {"custom_id": custom_id, "params": body.body}

    async def upload(self, file: BatchFile, key: UUID, *, may_exist: bool) -> str:
        return ""

    async def create(self, file: BatchFile | None, input_file: str, key: UUID) -> State:
        if file is None:
            raise ValueError("there is nothing to submit")
        with file.open() as body:
            headers = {"content-type": "application/json", **file.headers}
            return parse_state(require_id(await self._client.post(PATH, data=body, **headers)))

    async def find(self, search: SubmissionSearch) -> State | None:
        """Find a batch by its calls, because Anthropic's batches have no names. The calls are visible after its end.

        Raise AmbiguousSubmission while an unknown batch of this size and time is in progress. It may be the submission.
        This lasts a day at most, because every batch ends within a day.
        """
        candidates = []
        async for batch in self._iter_created_within(search):
            state = parse_state(batch)
            if state.provider_id in search.known_ids or sum(state.counts.values()) != search.n:
                continue
            is_match = await self._contains_key(state, search.key)
            if is_match:
                return state
            if is_match is None:
                candidates.append(state)
        if candidates:
            raise AmbiguousSubmission(candidates)
        return None

    async def retrieve(self, provider_id: str) -> State:
        return parse_state(await self._client.get(f"{PATH}/{quote(provider_id, safe='')}"))

    async def cancel(self, provider_id: str) -> State:
        return parse_state(await self._client.post(f"{PATH}/{quote(provider_id, safe='')}/cancel"))

    async def iter_lines(self, provider_id: str, files: list[str]) -> AsyncIterator[Line]:
        async for line in self._client.iter_lines(f"{PATH}/{quote(provider_id, safe='')}/results"):
            if payload := parse_object(line):
                yield parse_line(payload)

    async def _contains_key(self, state: State, key: UUID) -> bool | None:
        """Return whether the batch's calls have this key, or None while its results cannot be read."""
        if state.phase == Phase.WORKING:
            return None
        lines = self.iter_lines(state.provider_id, [])
        try:
            async for line in lines:
                await lines.aclose()  # type: ignore[attr-defined]
                return line.custom_id.startswith(key.hex)
        except CallFailure as failure:
            if failure.error_class != ErrorClass.NOT_FOUND:
                raise
            return None
        return False

    async def _iter_created_within(self, search: SubmissionSearch) -> AsyncIterator[dict[str, Any]]:
        """Yield the batches created when the submission may have arrived, newest first.

        Batches whose results were deleted are left out.
        """
        start, end = search.since - CLOCK_TOLERANCE, search.until + CLOCK_TOLERANCE
        async for batch in self._iter_newest_first():
            created = _parse_time(batch.get("created_at"))
            if created is not None and created < start:
                return
            if (created is None or created <= end) and not batch.get("archived_at"):
                yield batch

    async def _iter_newest_first(self) -> AsyncIterator[dict[str, Any]]:
        after = ""
        for _ in range(MAX_PAGES):
            page = await self._client.get(f"{PATH}?limit={PAGE_SIZE}{after}")
            rows = [row for row in page.get("data") or () if isinstance(row, dict)]
            for row in rows:
                yield row
            if not (page.get("has_more") and rows):
                return
            after = f"&after_id={quote(str(rows[-1].get('id')), safe='')}"


def parse_state(batch: dict[str, Any]) -> State:
    """Return the state in a message batch object."""
    status_name, counts = _read_text(batch.get("processing_status"), 40), parse_counts(batch.get("request_counts"))
    phase = Phase.WORKING
    if status_name == "ended":
        phase = Phase.EXPIRED if counts.get("expired") else Phase.ENDED
        phase = Phase.CANCELLED if batch.get("cancel_initiated_at") else phase
    return State(
        provider_id=_read_text(batch.get("id"), 200),
        phase=phase,
        status_name=status_name,
        counts=counts,
        expires_at=_parse_time(batch.get("expires_at")),
    )


def parse_line(payload: dict[str, Any]) -> Line:
    """Return a line of the results."""
    name, result = _read_text(payload.get("custom_id"), 64), payload.get("result")
    result = result if isinstance(result, dict) else {}
    kind = result.get("type")
    if kind == "succeeded":
        return Line(name, 200, json.dumps(result.get("message")).encode())
    if kind in ("expired", "canceled"):
        return Line(name, None, code="expired" if kind == "expired" else "cancelled")
    error = result.get("error")
    error = error if isinstance(error, dict) else {}
    inner = error.get("error")
    inner = inner if isinstance(inner, dict) else error
    return Line(name, STATUSES.get(str(inner.get("type")), 500), json.dumps({"type": "error", "error": inner}).encode())


def _read_text(value: Any, max_chars: int) -> str:
    return value[:max_chars] if isinstance(value, str) else ""


def _parse_time(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else None
