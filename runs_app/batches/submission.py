"""The submission of a batch: its file is built, and it is submitted only once.

Trials that need no call are recorded while the file is built. If the answer to the submission was lost, the worker
first searches the batch.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import IO, Any

from django.db.models.functions import Now

from runs_app.batches.batch_lease import BatchLease
from runs_app.batches.protocol import (
    AmbiguousSubmission,
    BatchApi,
    BatchFile,
    State,
    SubmissionSearch,
    build_custom_id,
    compute_retry_wait_s,
)
from runs_app.engine import outcomes
from runs_app.engine.design_cache import DesignCache
from runs_app.engine.jobs import Job, build_jobs
from runs_app.engine.recorder import Result
from runs_app.engine.recovery import record_each
from runs_app.llm import gateway
from runs_app.llm.calls import CallFailure, Kind, RequestBody
from runs_app.models import ProviderBatch, Trial

S = ProviderBatch.Status


LOST_S = 900.0  # A request without an answer may still arrive within this time: an upload's time-out plus a margin.


ANSWER_LOST = "The answer to its submission was lost."


MAX_NAMED = 3  # The number of candidates that an error names.


Sql = Callable[..., Awaitable[Any]]


_PENDING = Trial.Status.PENDING


class Submission:
    """The steps from claimed trials to a batch at the provider, for one batch and one worker."""

    def __init__(self, lease: BatchLease, api: BatchApi, sql: Sql, files: dict[int, BatchFile]) -> None:
        self._lease, self._api, self._sql, self._files = lease, api, sql, files

    async def prepare(self) -> bool:
        """Build the file, and record the trials that need no call."""
        file = await BatchFileBuilder(self._lease, self._api, self._sql, is_first=True).build()
        if file is None:
            await self._sql(self._lease.end, S.COLLECTED, "No call was left to make.", n_requests=0)
            return False
        self._files[self._lease.batch.pk] = file
        await self._sql(self._lease.move, S.SUBMITTING, f"{file.n} calls are ready.", n_requests=file.n)
        return True

    async def submit(self) -> bool:
        """Upload and create the batch, unless an earlier submission is found. A permanent failure stops the run."""
        if self._lease.batch.search_until is not None:
            try:
                existing = await self.search()
            except AmbiguousSubmission as ambiguous:
                await self._sql(schedule_search, self._lease, ambiguous.candidates)
                return False
            if existing is not None:
                return await self._adopt(existing, "found by its key")
        try:
            file, is_rebuilt = self._files.get(self._lease.batch.pk), False
            if file is None and not self._lease.batch.input_file:
                is_rebuilt = True
                file = await BatchFileBuilder(self._lease, self._api, self._sql, is_first=False).build()
                if file is not None:
                    self._files[self._lease.batch.pk] = file
            batch = self._lease.batch
            if file is not None and not batch.input_file:
                may_exist = is_rebuilt or batch.tries > 0
                await self._sql(
                    self._lease.save, input_file=await self._api.upload(file, batch.key, may_exist=may_exist)
                )
            # From here on, the provider may have a batch whose id this row does not have.
            await self._sql(
                self._lease.save_before_submission, search_until=Now() + timedelta(seconds=LOST_S), expires_at=None
            )
            state = await self._api.create(file, self._lease.batch.input_file, batch.key)
        except CallFailure as failure:
            await self._sql(handle_failure, self._lease, failure)
            return False
        return await self._adopt(state, "accepted by the provider")

    async def search(self) -> State | None:
        """Return the batch of an earlier submission, or None if the provider certainly did not create it.

        Raise AmbiguousSubmission while this is not clear.
        """
        # Check this before the search, so that a batch that arrives during the search is not missed.
        was_lost = await self._sql(is_lost, self._lease)
        state = await self._api.find(await self._sql(build_search, self._lease.batch))
        if state is None and not was_lost:
            raise AmbiguousSubmission
        return state

    async def _adopt(self, state: State, origin: str) -> bool:
        await self._sql(self._lease.save_provider_state, provider_id=state.provider_id, **build_state_columns(state))
        await self._sql(self._lease.move, S.SUBMITTED, f"{state.provider_id}, {origin}.", submitted_at=Now())
        if file := self._files.pop(self._lease.batch.pk, None):
            file.file.close()
        return True


def build_state_columns(state: State) -> dict[str, object]:
    """Return the columns of a batch for the provider's state."""
    return {
        "provider_status": state.status_name,
        "provider_counts": state.counts,
        "output_files": state.files,
        "expires_at": state.expires_at,
        "last_polled_at": Now(),
    }


def build_search(batch: ProviderBatch) -> SubmissionSearch:
    """Return the search for a batch whose submission was sent when `search_until` was set."""
    until = batch.search_until or batch.created_at
    others = ProviderBatch.objects.exclude(provider_id="").exclude(pk=batch.pk)
    recent = others.filter(created_at__gte=batch.created_at - timedelta(days=2))
    known_ids = frozenset(recent.values_list("provider_id", flat=True))
    return SubmissionSearch(batch.key, batch.n_requests, until - timedelta(seconds=LOST_S), until, known_ids)


def is_lost(lease: BatchLease) -> bool:
    """Return whether a submission without an answer can no longer arrive, by the database's clock."""
    return ProviderBatch.objects.filter(pk=lease.batch.pk, search_until__lt=Now()).exists()


def schedule_search(lease: BatchLease, candidates: Sequence[State]) -> None:
    """Schedule the next search, with growing waits. With candidates, the search may take a day."""
    tries = lease.batch.tries + 1
    end = max((state.expires_at for state in candidates if state.expires_at), default=None)
    lease.wait(compute_retry_wait_s(tries), tries=tries, error=_describe_wait(candidates), expires_at=end)


def _describe_wait(candidates: Sequence[State]) -> str:
    if not candidates:
        return f"{ANSWER_LOST} It may still arrive, so it is not submitted again yet."
    names = ", ".join(state.provider_id for state in candidates[:MAX_NAMED])
    more = f" and {len(candidates) - MAX_NAMED} more" if len(candidates) > MAX_NAMED else ""
    return (
        f"{ANSWER_LOST} At the provider, {names}{more} may be this batch; its end will show. Until then, nothing is "
        "submitted again."
    )


def handle_failure(lease: BatchLease, failure: CallFailure) -> None:
    """End the batch and stop the run after a permanent failure. Retry after other failures, with the same key."""
    status = failure.http_status
    was_refused = status is not None and status < 500 and failure.kind != Kind.TRANSIENT
    if was_refused or not failure.was_sent:
        lease.save_provider_state(search_until=None)  # The provider created no batch.
    if failure.kind == Kind.PERMANENT and (was_refused or not failure.was_sent):
        refuse_batch(lease, str(failure))
        return
    tries = lease.batch.tries + 1
    lease.wait(compute_retry_wait_s(tries, failure.retry_after_s), tries=tries, error=str(failure))


def refuse_batch(lease: BatchLease, problem: str) -> None:
    """End a batch that the provider refused, and stop its run, which would only create the same batch again.

    No call was made, so the trials lose no attempt.
    """
    reason = f"The provider refused a batch: {problem}"
    lease.stop_run(reason)
    lease.release_trials()
    lease.end(S.FAILED, reason, error=problem)


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
        return build_jobs(self._lease.list_held_claims(after=after), self._designs)

    async def _write_or_conclude(self, job: Job, file: IO[bytes]) -> Result | None:
        """Write a job to the file, or return its result if no call can be made.

        That is so if the cache has its answer, if its request cannot be built, or if the file is full.
        """
        if self._is_first and job.cached_reply is not None:
            outcome = outcomes.build_cached_outcome(job.cached_reply, job.scale)
            return job.build_result(outcome, [outcomes.build_attempt_from_cache(job.cached_reply)])
        try:
            if isinstance(job.prepared, CallFailure):
                raise job.prepared
            body = await gateway.build_body(job.prepared.request)
        except CallFailure as failure:
            if not self._is_first:  # The first file had this trial, and this file must be the same.
                raise
            return _build_failed_result(job, failure)
        await asyncio.sleep(0)  # Building takes a millisecond or two, so let other tasks run.
        return None if self._write(job, body, file) else Result(job.claim, _PENDING, released=True)

    def _write(self, job: Job, body: RequestBody, file: IO[bytes]) -> bool:
        name = build_custom_id(self._lease.batch.key, job.claim.trial_id)
        entry = json.dumps(self._api.build_entry(name, body)).encode()
        if self._n and self._size + len(entry) > self._api.max_bytes:
            return False
        file.write(self._api.separator * bool(self._n) + entry)
        self._n, self._size = self._n + 1, self._size + len(entry) + 1
        self._headers |= body.headers
        return True


def _build_failed_result(job: Job, failure: CallFailure) -> Result:
    """Return the result of a job for which no call was made. It does not pause the endpoint."""
    failure.was_sent = False
    outcome = outcomes.build_failure_outcome(
        failure, attempts=job.claim.attempts, yields=job.claim.yields, retry=job.retry
    )
    outcome = outcomes.Outcome(outcome.status, outcome.trial, outcome.released, outcome.wait_s)
    return job.build_result(outcome, [outcomes.build_attempt_from_failure(failure)])
