"""The state of a batch and the interface of a batch API, the same for all providers. Pure."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import IO, Any, Protocol
from uuid import UUID

from runs_app.llm.calls import RequestBody


class Phase(StrEnum):
    """The phase of a batch at its provider. All but `WORKING` are final."""

    WORKING = "working"
    ENDED = "ended"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"  # refused as a whole: no call was made


@dataclass(frozen=True, slots=True)
class State:
    """The state of a batch. `files` are the ids of its result files. `status_name` is the provider's own status."""

    provider_id: str
    phase: Phase
    status_name: str
    counts: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    expires_at: datetime | None = None
    problem: str = ""
    is_full: bool = False  # The provider accepts no more batches now; the batch itself is valid.


class AmbiguousSubmission(Exception):
    """Raised if the batch may be one of these candidates in progress or, without candidates, may still arrive."""

    def __init__(self, candidates: Sequence[State] = ()) -> None:
        super().__init__()
        self.candidates = candidates


@dataclass(frozen=True, slots=True)
class Line:
    """The result of one call. Without a `status`, no call was made, and `code` is the reason: expired or cancelled."""

    custom_id: str
    status: int | None
    body: bytes = b""
    code: str = ""


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A batch file in the provider's format, with the number `n` and the headers of its calls.

    The file has no name, so that it disappears with its worker even if the worker is killed.
    """

    file: IO[bytes]
    n: int
    headers: dict[str, str]

    def open(self) -> IO[bytes]:
        """Return the file, opened at its start. The caller closes it."""
        copy = os.fdopen(os.dup(self.file.fileno()), "rb")
        copy.seek(0)
        return copy


@dataclass(frozen=True, slots=True)
class SubmissionSearch:
    """A search for a batch whose submission got no answer.

    The submission was sent at `since` and may have arrived until `until`, both by this site's clock. `known_ids` are
    the provider's ids of other batches of this site.
    """

    key: UUID
    n: int
    since: datetime
    until: datetime
    known_ids: frozenset[str]


class BatchApi(Protocol):
    """The batches of one provider. Every method except `build_entry` uses HTTP and may raise CallFailure."""

    max_bytes: int
    opening: bytes
    separator: bytes
    closing: bytes

    def build_entry(self, custom_id: str, body: RequestBody) -> dict[str, Any]:
        """Return one call in the file's format."""
        ...

    async def upload(self, file: BatchFile, key: UUID, *, may_exist: bool) -> str:
        """Upload the file and return its id, or "" if the provider has no files. `may_exist`: look for it first."""
        ...

    async def create(self, file: BatchFile | None, input_file: str, key: UUID) -> State:
        """Submit the batch. After that, the provider makes and bills its calls."""
        ...

    async def find(self, search: SubmissionSearch) -> State | None:
        """Return the batch of a lost submission, or None. Raise AmbiguousSubmission while this is not clear."""
        ...

    async def retrieve(self, provider_id: str) -> State: ...

    async def cancel(self, provider_id: str) -> State: ...

    def iter_lines(self, provider_id: str, files: list[str]) -> AsyncIterator[Line]:
        """Yield the result of each call, in any order."""
        ...


def build_custom_id(key: UUID, trial_id: int) -> str:
    """Return a call's name at the provider: at most 52 characters that all providers accept."""
    return f"{key.hex}-{trial_id}"


def parse_custom_id(name: str, key: UUID) -> int | None:
    """Return the trial id in a call's name, or None if the name does not belong to this batch."""
    prefix, _, number = name.partition("-")
    return int(number) if prefix == key.hex and number.isascii() and number.isdigit() and len(number) < 19 else None
