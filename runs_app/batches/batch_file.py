"""The file of a batch: built from the trials that the batch holds. Trials that need no call are settled here."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from typing import IO, Any

from runs_app.batches.batch_lease import BatchLease, list_held_claims
from runs_app.batches.protocol import BatchApi, BatchFile, custom_id
from runs_app.engine import outcomes
from runs_app.engine.database_recovery import record_each
from runs_app.engine.design_cache import DesignCache
from runs_app.engine.jobs import Job, build_jobs, build_result
from runs_app.engine.recorder import Result
from runs_app.engine.requests import PreparedRequest
from runs_app.llm import gateway
from runs_app.llm.calls import CallFailure, RequestBody
from runs_app.models import Trial

Sql = Callable[..., Awaitable[Any]]


class BatchFileBuilder:
    """A builder of one file. With `settles`, its trials may still be given back; a file made again is the same."""

    def __init__(self, lease: BatchLease, api: BatchApi, sql: Sql, *, settles: bool) -> None:
        self._lease, self._api, self._sql, self._settles = lease, api, sql, settles
        self._questions = DesignCache()
        self._n = self._size = 0
        self._headers: dict[str, str] = {}

    async def pack(self) -> BatchFile | None:
        """Return the file of the trials to ask, or None if none is left."""
        file = tempfile.TemporaryFile(prefix="evalsite-batch-")  # noqa: SIM115 - closed once it was sent
        try:
            file.write(self._api.opening)
            await self._write_all(file)
            file.write(self._api.closing)
            file.flush()
        except BaseException:
            file.close()
            raise
        if self._n:
            return BatchFile(file, self._n, self._headers)
        file.close()
        return None

    async def _write_all(self, file: IO[bytes]) -> None:
        after = 0
        while jobs := await self._sql(self._jobs, after):
            after = jobs[-1].claim.trial_id
            settled = [result for job in jobs if (result := await self._settled_or_written(job, file))]
            if self._settles and settled:
                await self._sql(record_each, settled, self._lease.worker_id)

    def _jobs(self, after: int) -> Sequence[Job]:
        return build_jobs(list_held_claims(self._lease, after=after), self._questions)

    async def _settled_or_written(self, job: Job, file: IO[bytes]) -> Result | None:
        """Write a job to the file, or return its result if it needs no call.

        It needs none if the cache has its answer, if it cannot be asked, or if the file is full.
        """
        if self._settles and job.cached_reply is not None:
            conclusion = outcomes.build_cached_outcome(job.cached_reply, job.scale)
            return build_result(job, conclusion, [outcomes.build_attempt_from_cache(job.cached_reply)])
        try:
            if isinstance(job.prepared, CallFailure):
                raise job.prepared
            body = await gateway.build_body(job.prepared.request)
        except CallFailure as failure:
            if not self._settles:  # The trial could be written once. A file without it would be another file.
                raise
            return _failed(job, failure)
        await asyncio.sleep(0)  # Shaping takes a millisecond or two, so other tasks get their turn.
        return None if self._write(job, job.prepared, body, file) else Result(job.claim, _PENDING, unspent=True)

    def _write(self, job: Job, prepared: PreparedRequest, body: RequestBody, file: IO[bytes]) -> bool:
        entry = json.dumps(self._api.entry(custom_id(self._lease.batch.key, job.claim.trial_id), body)).encode()
        if self._n and self._size + len(entry) > self._api.most_bytes:
            return False
        file.write(self._api.separator * bool(self._n) + entry)
        self._n, self._size = self._n + 1, self._size + len(entry) + 1
        self._headers |= body.headers
        return True


_PENDING = Trial.Status.PENDING


def _failed(job: Job, failure: CallFailure) -> Result:
    """Return the result of a job that never was a call. A transient fault waits as after any other failure."""
    failure.was_sent = False
    conclusion = outcomes.build_failure_outcome(
        failure, attempts=job.claim.attempts, yields=job.claim.yields, retry=job.retry
    )
    conclusion = outcomes.Outcome(conclusion.status, conclusion.trial, conclusion.unspent, conclusion.wait_s)
    return build_result(job, conclusion, [outcomes.build_attempt_from_failure(failure)])
