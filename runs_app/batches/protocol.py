"""What a provider says of a batch, in one form for all of them. Pure."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import IO, Any, Protocol
from uuid import UUID

from runs_app.llm.calls import Shaped


class Phase(StrEnum):
    """How far a provider is. All but `WORKING` are final."""

    WORKING = "working"
    ENDED = "ended"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"  # Refused as a whole: none of its calls were made


@dataclass(frozen=True, slots=True)
class State:
    """`files` are the ids of what can be collected; `word` is the provider's own for the phase."""

    provider_id: str
    phase: Phase
    word: str
    counts: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    expires_at: datetime | None = None
    problem: str = ""
    is_full: bool = False  # The provider takes no more for now: no fault of this batch


class AmbiguousSubmission(Exception):
    """What is sought may be one of these, which are at work; or, if there are none, may still arrive."""

    def __init__(self, candidates: Sequence[State] = ()) -> None:
        super().__init__()
        self.candidates = candidates


@dataclass(frozen=True, slots=True)
class Line:
    """What came of one call. Without a `status` it was never made, and `code` says why: expired or cancelled."""

    custom_id: str
    status: int | None
    body: bytes = b""
    code: str = ""


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file as a provider takes it: `n` calls, and headers that its requests ask for.

    The file has no name, so that it goes with its worker, however that ends.
    """

    file: IO[bytes]
    n: int
    headers: dict[str, str]

    def opened(self) -> IO[bytes]:
        """From its beginning, for whoever closes it."""
        copy = os.fdopen(os.dup(self.file.fileno()), "rb")
        copy.seek(0)
        return copy


@dataclass(frozen=True, slots=True)
class SubmissionSearch:
    """A batch whose submission's answer was lost. `known` are the provider's ids of other batches of this site.

    It was sent at `since` and may have arrived `until` then, both by this site's clock.
    """

    key: UUID
    n: int
    since: datetime
    until: datetime
    known: frozenset[str]


class BatchApi(Protocol):
    """One provider's batches. Every method but `entry` is HTTP, and raises CallFailure."""

    most_bytes: int
    opening: bytes
    separator: bytes
    closing: bytes

    def entry(self, custom_id: str, shaped: Shaped) -> dict[str, Any]:
        """One call as the file holds it."""
        ...

    async def upload(self, package: BatchFile, key: UUID, *, again: bool) -> str:
        """The provider's id of the file, or "" where it takes none. `again`: it may be there already."""
        ...

    async def create(self, package: BatchFile | None, input_file: str, key: UUID) -> State:
        """Submit: from here on calls are made and paid."""
        ...

    async def find(self, sought: SubmissionSearch) -> State | None:
        """The batch that a lost submission made, or None. Undecided where the provider cannot say yet."""
        ...

    async def look(self, provider_id: str) -> State: ...

    async def cancel(self, provider_id: str) -> State: ...

    def lines(self, provider_id: str, files: list[str]) -> AsyncIterator[Line]:
        """What came of each call, in any order."""
        ...


def custom_id(key: UUID, trial_id: int) -> str:
    """The name of one call at the provider: at most 52 characters of those that all of them take."""
    return f"{key.hex}-{trial_id}"


def parse_custom_id(name: str, key: UUID) -> int | None:
    """The trial that a name of this batch means, or None for a name that is not one of it."""
    prefix, _, number = name.partition("-")
    return int(number) if prefix == key.hex and number.isascii() and number.isdigit() and len(number) < 19 else None
