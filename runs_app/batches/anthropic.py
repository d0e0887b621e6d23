"""The batch API of Anthropic. The calls are the body of the submission; the results are one stream of lines."""

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
MOST_PAGES, PAGE = 100, 1000
SLACK = timedelta(hours=1)  # A provider's clock may be wrong by this.
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

    most_bytes = 240 * 10**6  # Of the 256 MB that the provider accepts.
    opening, separator, closing = b'{"requests":[', b",", b"]}"

    def __init__(self, url: str, key: str) -> None:
        self._door = ApiClient(url.removesuffix("/v1"), key, {"x-api-key": key, "anthropic-version": VERSION})

    def entry(self, custom_id: str, body: RequestBody) -> dict[str, Any]:
        return {"custom_id": custom_id, "params": body.body}

    async def upload(self, package: BatchFile, key: UUID, *, again: bool) -> str:
        return ""

    async def create(self, package: BatchFile | None, input_file: str, key: UUID) -> State:
        if package is None:
            raise ValueError("there is nothing to submit")
        with package.open() as file:
            headers = {"content-type": "application/json", **package.headers}
            return parse_state(require_id(await self._door.post(PATH, data=file, **headers)))

    async def find(self, search: SubmissionSearch) -> State | None:
        """Find a batch by its content, because it has no name here. It shows its calls only once it has ended.

        Raise AmbiguousSubmission if an unknown batch of this size and time is still at work. It may be the one. This
        lasts a day at most, because every batch ends within that time.
        """
        candidates = []
        async for batch in self._made_within(search):
            state = parse_state(batch)
            if state.provider_id in search.known_ids or sum(state.counts.values()) != search.n:
                continue
            is_it = await self._holds(state, search.key)
            if is_it:
                return state
            if is_it is None:
                candidates.append(state)
        if candidates:
            raise AmbiguousSubmission(candidates)
        return None

    async def retrieve(self, provider_id: str) -> State:
        return parse_state(await self._door.get(f"{PATH}/{quote(provider_id, safe='')}"))

    async def cancel(self, provider_id: str) -> State:
        return parse_state(await self._door.post(f"{PATH}/{quote(provider_id, safe='')}/cancel"))

    async def lines(self, provider_id: str, files: list[str]) -> AsyncIterator[Line]:
        async for line in self._door.lines(f"{PATH}/{quote(provider_id, safe='')}/results"):
            if found := parse_object(line):
                yield parse_line(found)

    async def _holds(self, state: State, key: UUID) -> bool | None:
        """Return whether the batch's calls have this key, or None while its results cannot be read."""
        if state.phase == Phase.WORKING:
            return None
        lines = self.lines(state.provider_id, [])
        try:
            async for line in lines:
                await lines.aclose()  # type: ignore[attr-defined]
                return line.custom_id.startswith(key.hex)
        except CallFailure as failure:
            if failure.error_class != ErrorClass.NOT_FOUND:
                raise
            return None
        return False

    async def _made_within(self, search: SubmissionSearch) -> AsyncIterator[dict[str, Any]]:
        """Yield the batches made when the submission may have arrived, newest first.

        Batches whose results were deleted are left out.
        """
        begins, ends = search.since - SLACK, search.until + SLACK
        async for batch in self._newest_first():
            made = _time(batch.get("created_at"))
            if made is not None and made < begins:
                return
            if (made is None or made <= ends) and not batch.get("archived_at"):
                yield batch

    async def _newest_first(self) -> AsyncIterator[dict[str, Any]]:
        after = ""
        for _ in range(MOST_PAGES):
            page = await self._door.get(f"{PATH}?limit={PAGE}{after}")
            rows = [row for row in page.get("data") or () if isinstance(row, dict)]
            for row in rows:
                yield row
            if not (page.get("has_more") and rows):
                return
            after = f"&after_id={quote(str(rows[-1].get('id')), safe='')}"


def parse_state(batch: dict[str, Any]) -> State:
    """Return the state that a message batch object reports."""
    word, counts = _text(batch.get("processing_status"), 40), parse_counts(batch.get("request_counts"))
    phase = Phase.WORKING
    if word == "ended":
        phase = Phase.EXPIRED if counts.get("expired") else Phase.ENDED
        phase = Phase.CANCELLED if batch.get("cancel_initiated_at") else phase
    return State(
        provider_id=_text(batch.get("id"), 200),
        phase=phase,
        status_name=word,
        counts=counts,
        expires_at=_time(batch.get("expires_at")),
    )


def parse_line(found: dict[str, Any]) -> Line:
    """Return a line of the results."""
    name, result = _text(found.get("custom_id"), 64), found.get("result")
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


def _text(value: Any, longest: int) -> str:
    return value[:longest] if isinstance(value, str) else ""


def _time(value: Any) -> datetime | None:
    try:
        made = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return made if made.tzinfo else None
