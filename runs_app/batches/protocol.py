"""The state of a batch and the interface of a batch API, in one form for all providers. Pure."""

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
    FAILED = "failed"  # Refused as a whole: none of its calls was made


@dataclass(frozen=True, slots=True)
class State:
    """The state of a batch. `files` are the ids of collectable files. The provider calls the phase `status_name`."""

    provider_id: str
    phase: Phase
    status_name: str
    counts: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    expires_at: datetime | None = None
    problem: str = ""
    is_full: bool = False  # The provider accepts no more for now: no fault of this batch


class AmbiguousSubmission(Exception):
    """The wanted batch may be one of these candidates at work or, without candidates, may still arrive."""

    def __init__(self, candidates: Sequence[State] = ()) -> None:
        super().__init__()
        self.candidates = candidates


@dataclass(frozen=True, slots=True)
class Line:
    """The result of one call. Without a `status` no call was made, and `code` says why: expired or cancelled."""

    custom_id: str
    status: int | None
    body: bytes = b""
    code: str = ""


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A batch file in the provider's format, with its `n` calls and the headers that they need.

    The file has no name, so that it disappears with its worker, however that ends.
    """

    file: IO[bytes]
    n: int
    headers: dict[str, str]

    def open(self) -> IO[bytes]:
        """Return the file open at its beginning. The caller closes it."""
        copy = os.fdopen(os.dup(self.file.fileno()), "rb")
        copy.seek(0)
        return copy


@dataclass(frozen=True, slots=True)
class SubmissionSearch:
    """A search for a batch whose submission got no answer.

    It was sent at `since` and may have arrived until `until`, both by this site's clock. `known_ids` are the provider's
    ids of other batches of this site.
    """

    key: UUID
    n: int
    since: datetime
    until: datetime
    known_ids: frozenset[str]


class BatchApi(Protocol):
    """The batches of one provider. Every method but `entry` uses HTTP, and raises CallFailure."""

    most_bytes: int
    opening: bytes
    separator: bytes
    closing: bytes

    def entry(self, custom_id: str, body: RequestBody) -> dict[str, Any]:
        """Return one call in the form of the file."""
        ...

    async def upload(self, package: BatchFile, key: UUID, *, again: bool) -> str:
        """Upload the file and return its id, or "" if the provider takes none. `again`: it may be there already."""
        ...

    async def create(self, package: BatchFile | None, input_file: str, key: UUID) -> State:
        """Submit the batch. From here on, calls are made and paid."""
        ...

    async def find(self, search: SubmissionSearch) -> State | None:
        """Return the batch that a lost submission made, or None. Raise AmbiguousSubmission if that is not clear yet."""
        ...

    async def retrieve(self, provider_id: str) -> State: ...

    async def cancel(self, provider_id: str) -> State: ...

    def lines(self, provider_id: str, files: list[str]) -> AsyncIterator[Line]:
        """Yield the result of each call, in any order."""
        ...


def custom_id(key: UUID, trial_id: int) -> str:
    """Return the name of one call at the provider: at most 52 characters that all providers accept."""
    return f"{key.hex}-{trial_id}"


def parse_custom_id(name: str, key: UUID) -> int | None:
    """Return the trial that a name of this batch means, or None for any other name."""
    prefix, _, number = name.partition("-")
    return int(number) if prefix == key.hex and number.isascii() and number.isdigit() and len(number) < 19 else None
