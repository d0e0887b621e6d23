"""Batch files: built from the trials that a batch holds. Trials that need no call are recorded meanwhile."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from typing import IO, Any

from runs_app.batches.batch_lease import BatchLease, list_held_claims
from runs_app.batches.protocol import BatchApi, BatchFile, build_custom_id
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
    """A builder of one batch's file.

    The first build drops trials that need no call and records their results. A rebuild (`is_first` false) must yield
    the same file, so it drops nothing.
    """

    def __init__(self, lease: BatchLease, api: BatchApi, sql: Sql, *, is_first: bool) -> None:
        self._lease, self._api, self._sql, self._is_first = lease, api, sql, is_first
        self._designs = DesignCache()
        self._n = self._size = 0
        self._headers: dict[str, str] = {}

    async def build(self) -> BatchFile | None:
        """Return the file of the trials that need a call, or None if there are none."""
        file = tempfile.TemporaryFile(prefix="evalsite-batch-")  # noqa: SIM115 - closed after the submission
        try:
            file.write(self._api.opening)
            after = 0
            while jobs := await self._sql(self._build_jobs, after):
                after = jobs[-1].claim.trial_id
                results = [result for job in jobs if (result := await self._write_or_conclude(job, file))]
                if self._is_first and results:
                    await self._sql(record_each, results, self._lease.worker_id)
            file.write(self._api.closing)
            file.flush()
        except BaseException:
            file.close()
            raise
        if self._n:
            return BatchFile(file, self._n, self._headers)
        file.close()
        return None

    def _build_jobs(self, after: int) -> Sequence[Job]:
        return build_jobs(list_held_claims(self._lease, after=after), self._designs)

    async def _write_or_conclude(self, job: Job, file: IO[bytes]) -> Result | None:
        """Write a job to the file, or return its result if no call can be made.

        That is so if the cache has its answer, if its request cannot be built, or if the file is full.
        """
        if self._is_first and job.cached_reply is not None:
            outcome = outcomes.build_cached_outcome(job.cached_reply, job.scale)
            return build_result(job, outcome, [outcomes.build_attempt_from_cache(job.cached_reply)])
        try:
            if isinstance(job.prepared, CallFailure):
                raise job.prepared
            body = await gateway.build_body(job.prepared.request)
        except CallFailure as failure:
            if not self._is_first:  # The first file had this trial, and this file must be the same.
                raise
            return _build_failed_result(job, failure)
        await asyncio.sleep(0)  # Building takes a millisecond or two, so let other tasks run.
        return None if self._write(job, job.prepared, body, file) else Result(job.claim, _PENDING, released=True)

    def _write(self, job: Job, prepared: PreparedRequest, body: RequestBody, file: IO[bytes]) -> bool:
        name = build_custom_id(self._lease.batch.key, job.claim.trial_id)
        entry = json.dumps(self._api.build_entry(name, body)).encode()
        if self._n and self._size + len(entry) > self._api.max_bytes:
            return False
        file.write(self._api.separator * bool(self._n) + entry)
        self._n, self._size = self._n + 1, self._size + len(entry) + 1
        self._headers |= body.headers
        return True


_PENDING = Trial.Status.PENDING


def _build_failed_result(job: Job, failure: CallFailure) -> Result:
    """Return the result of a job for which no call was made. It does not pause the endpoint."""
    failure.was_sent = False
    outcome = outcomes.build_failure_outcome(
        failure, attempts=job.claim.attempts, yields=job.claim.yields, retry=job.retry
    )
    outcome = outcomes.Outcome(outcome.status, outcome.trial, outcome.released, outcome.wait_s)
    return build_result(job, outcome, [outcomes.build_attempt_from_failure(failure)])
