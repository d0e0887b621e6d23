"""The state of a batch, its size and poll times, and the interface of a batch API, the same for all providers. Pure."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
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


MIN_POLL_S = 1.0
MAX_POLL_S = 300.0
MAX_RETRY_S = 600.0
MAX_LOOKUPS = 12  # A batch fails after its provider did not find it this many times in a row.


def compute_batch_size(pending: int, most: int, budget: Decimal | None, reserve_usd: Decimal) -> int:
    """Return the size of a run's next batch: the pending calls, limited by `most` and the budget (None: no budget)."""
    size = max(0, min(pending, most))
    if budget is None or reserve_usd <= 0:
        return size
    return min(size, max(0, int(budget // reserve_usd)))


def compute_poll_interval_s(age_s: float) -> float:
    """Return the seconds until a batch is polled again: a tenth of its age, between 1 and 300."""
    return min(max(age_s / 10, MIN_POLL_S), MAX_POLL_S)


def compute_retry_wait_s(failures: int, retry_after_s: float | None = None) -> float:
    """Return the seconds until the next try after `failures` in a row: 2, 4, 8 ..., or the provider's own wait."""
    wait = min(2.0 ** min(max(failures, 1), 20), MAX_RETRY_S)
    return wait if retry_after_s is None else max(retry_after_s, 1.0)
