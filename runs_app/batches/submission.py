"""The submission of a batch, which happens only once. If its answer was lost, the worker first searches the batch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db.models.functions import Now

from runs_app.batches.batch_file import BatchFileBuilder, Sql
from runs_app.batches.batch_lease import BatchLease, release_trials, stop_run
from runs_app.batches.batch_size import compute_retry_wait_s
from runs_app.batches.protocol import AmbiguousSubmission, BatchApi, BatchFile, State, SubmissionSearch
from runs_app.llm.calls import CallFailure, Kind
from runs_app.models import ProviderBatch

S = ProviderBatch.Status
LOST_S = 900.0  # A request without an answer may still arrive within this time: an upload's time-out plus a margin.
ANSWER_LOST = "The answer to its submission was lost."
MAX_NAMED = 3  # The number of candidates that an error names.


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
    stop_run(lease, reason)
    release_trials(lease)
    lease.end(S.FAILED, reason, error=problem)
