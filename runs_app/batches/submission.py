"""The submission of a batch, made only once. If its answer was lost, a search for the batch comes first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db.models.functions import Now

from runs_app.batches.batch_file import BatchFileBuilder, Sql
from runs_app.batches.batch_lease import BatchLease, release_trials, stop_run
from runs_app.batches.batch_size import retry_wait_s
from runs_app.batches.protocol import AmbiguousSubmission, BatchApi, BatchFile, State, SubmissionSearch
from runs_app.llm.calls import CallFailure, Kind
from runs_app.models import ProviderBatch

S = ProviderBatch.Status
LOST_S = 900.0  # Seconds. A request without an answer may still arrive: an upload's time-out, and some more.
LOST = "The answer to its submission was lost."
SHOWN = 3  # The number of possible batches that an error names.


class Submission:
    """The steps from trials to a batch at the provider, for one batch and one worker."""

    def __init__(self, lease: BatchLease, api: BatchApi, sql: Sql, packages: dict[int, BatchFile]) -> None:
        self._lease, self._api, self._sql, self._packages = lease, api, sql, packages

    async def prepare(self) -> bool:
        """Settle the trials that need no call, and write the rest into a file."""
        package = await BatchFileBuilder(self._lease, self._api, self._sql, settles=True).pack()
        if package is None:
            await self._sql(self._lease.end, S.COLLECTED, "Nothing was left to ask.", n_requests=0)
            return False
        self._packages[self._lease.batch.pk] = package
        await self._sql(self._lease.move, S.SUBMITTING, f"{package.n} calls are ready.", n_requests=package.n)
        return True

    async def submit(self) -> bool:
        """Upload and create the batch, unless an earlier submission is found. A permanent failure stops the run."""
        if self._lease.batch.gone_by is not None:
            try:
                found = await self.search()
            except AmbiguousSubmission as undecided:
                await self._sql(schedule_search, self._lease, undecided.candidates)
                return False
            if found is not None:
                return await self._adopt(found, "found again by its key")
        try:
            state = await self._upload_and_create()
        except CallFailure as failure:
            await self._sql(handle_failure, self._lease, failure)
            return False
        return await self._adopt(state, "taken by the provider")

    async def search(self) -> State | None:
        """Return the batch that an earlier submission made, or None if it surely made none.

        Raise AmbiguousSubmission while this is not clear.
        """
        is_over = await self._sql(
            is_surely_lost, self._lease
        )  # Checked first: a batch that arrives during the search is not missed.
        found = await self._api.find(await self._sql(search_keys, self._lease.batch))
        if found is None and not is_over:
            raise AmbiguousSubmission
        return found

    async def _upload_and_create(self) -> State:
        package, is_new = self._packages.get(self._lease.batch.pk), False
        if package is None and not self._lease.batch.input_file:
            is_new = True
            package = await BatchFileBuilder(self._lease, self._api, self._sql, settles=False).pack()
            if package is not None:
                self._packages[self._lease.batch.pk] = package
        batch = self._lease.batch
        if package is not None and not batch.input_file:
            again = is_new or batch.tries > 0
            await self._sql(self._lease.save, input_file=await self._api.upload(package, batch.key, again=again))
        # From here on, the provider may have a batch that this row does not name.
        await self._sql(self._lease.save_before_submission, gone_by=Now() + timedelta(seconds=LOST_S), expires_at=None)
        return await self._api.create(package, self._lease.batch.input_file, batch.key)

    async def _adopt(self, state: State, origin: str) -> bool:
        await self._sql(self._lease.save_provider_facts, provider_id=state.provider_id, **state_columns(state))
        await self._sql(self._lease.move, S.SUBMITTED, f"{state.provider_id}, {origin}.", submitted_at=Now())
        if package := self._packages.pop(self._lease.batch.pk, None):
            package.file.close()
        return True


def state_columns(state: State) -> dict[str, object]:
    """Return the columns of a batch's row that hold the provider's state."""
    return {
        "provider_status": state.status_name,
        "provider_counts": state.counts,
        "output_files": state.files,
        "expires_at": state.expires_at,
        "last_polled_at": Now(),
    }


def search_keys(batch: ProviderBatch) -> SubmissionSearch:
    """Return the search for a submission that was sent when `gone_by` was set."""
    until = batch.gone_by or batch.created_at
    others = ProviderBatch.objects.exclude(provider_id="").exclude(pk=batch.pk)
    known = others.filter(created_at__gte=batch.created_at - timedelta(days=2)).values_list("provider_id", flat=True)
    return SubmissionSearch(batch.key, batch.n_requests, until - timedelta(seconds=LOST_S), until, frozenset(known))


def is_surely_lost(lease: BatchLease) -> bool:
    """Return whether a submission that cannot be found was surely never made, by the database's clock."""
    return ProviderBatch.objects.filter(pk=lease.batch.pk, gone_by__lt=Now()).exists()


def schedule_search(lease: BatchLease, candidates: Sequence[State]) -> None:
    """Schedule the next search, with growing waits. If a batch without a name may be the one, that can take a day."""
    tries = lease.batch.tries + 1
    ends = max((state.expires_at for state in candidates if state.expires_at), default=None)
    lease.wait(retry_wait_s(tries), tries=tries, error=_describe_wait(candidates), expires_at=ends)


def _describe_wait(candidates: Sequence[State]) -> str:
    if not candidates:
        return f"{LOST} It may still arrive, so nothing is submitted again yet."
    names = ", ".join(state.provider_id for state in candidates[:SHOWN])
    more = f" and {len(candidates) - SHOWN} more" if len(candidates) > SHOWN else ""
    return (
        f"{LOST} At the provider, {names}{more} may be it: that shows once it has ended. Nothing is submitted before."
    )


def handle_failure(lease: BatchLease, failure: CallFailure) -> None:
    """Refuse the batch and stop the run after a permanent failure. Try others again, with the same key."""
    status = failure.http_status
    refused = status is not None and status < 500 and failure.kind != Kind.TRANSIENT
    if refused or not failure.was_sent:
        lease.save_provider_facts(gone_by=None)  # Nothing was made.
    if failure.kind == Kind.PERMANENT and (refused or not failure.was_sent):
        refuse_batch(lease, str(failure))
        return
    tries = lease.batch.tries + 1
    lease.wait(retry_wait_s(tries, failure.retry_after_s), tries=tries, error=str(failure))


def refuse_batch(lease: BatchLease, why: str) -> None:
    """End a batch that was refused. None of its calls was made, so its trials lose no attempt.

    The run stops, because it would only ask the same again.
    """
    reason = f"The provider refused a batch: {why}"
    stop_run(lease, reason)
    release_trials(lease)
    lease.end(S.FAILED, reason, error=why)
