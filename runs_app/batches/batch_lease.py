"""Batch leases: one worker holds a batch and renews its lease. Another worker takes over when the lease ends."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connection, models, transaction
from django.db.models import F
from django.db.models.functions import Greatest, Now

from runs_app.engine.admission import Claim
from runs_app.engine.counters import CounterKeys
from runs_app.engine.recorder import Result
from runs_app.engine.recovery import record_each
from runs_app.llm.calls import ErrorClass
from runs_app.models import ProviderBatch, Run, Trial

S = ProviderBatch.Status
LEASE_S = 60.0
CHUNK_SIZE = 200  # The number of trials that one statement fetches.

TAKE_LEASE = """
UPDATE runs_app_providerbatch SET claim = %s, worker_id = %s, lease_until = clock_timestamp() + %s * interval '1 second'
WHERE id = (SELECT id FROM runs_app_providerbatch
    WHERE status = ANY(%s) AND next_poll_at <= clock_timestamp()
        AND (lease_until IS NULL OR lease_until <= clock_timestamp())
    ORDER BY next_poll_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id
"""


class LeaseLost(Exception):
    """Raised if another worker holds this batch, or a user changed its status. The worker then leaves the batch."""


@dataclass(slots=True)
class BatchLease:
    """A batch that this worker holds. Every change checks the lease."""

    batch: ProviderBatch
    worker_id: int
    claim: uuid.UUID = field(repr=False)
    recorded: int = 0  # The number of results written under this lease.

    @property
    def actor(self) -> str:
        return f"worker {self.worker_id}"

    @property
    def counter_keys(self) -> CounterKeys:
        return CounterKeys(self.batch.run_id, self.batch.run.experiment_id, self.batch.endpoint_id)

    def save(self, **changes: Any) -> None:
        """Change columns. Raise LeaseLost if another worker has the lease, or if the status changed."""
        rows = ProviderBatch.objects.filter(pk=self.batch.pk, claim=self.claim, status=self.batch.status)
        if not rows.update(**changes):
            raise LeaseLost
        self._refresh()

    def should_cancel(self) -> bool:
        """Return whether the batch is not submitted yet, and its run is not running or its endpoint is inactive."""
        is_unsubmitted = self.batch.status in (S.PREPARING, S.SUBMITTING) and self.batch.search_until is None
        return is_unsubmitted and not self._active_rows.exists()

    def save_before_submission(self, **changes: Any) -> None:
        """Change columns right before the submission. Raise LeaseLost as `save` does, or if `should_cancel` applies."""
        if not self._active_rows.filter(claim=self.claim, status=self.batch.status).update(**changes):
            raise LeaseLost
        self._refresh()

    @property
    def _active_rows(self) -> models.QuerySet[ProviderBatch]:
        return ProviderBatch.objects.filter(pk=self.batch.pk, run__status=Run.Status.RUNNING, endpoint__is_active=True)

    def save_provider_state(self, **columns: Any) -> None:
        """Save the provider's state of the batch for the next step, whatever the batch's status is now."""
        if not ProviderBatch.objects.filter(pk=self.batch.pk, claim=self.claim).update(**columns):
            raise LeaseLost

    def move(self, target: str, reason: str, **changes: Any) -> None:
        """Change the status and write its history. Raise LeaseLost if the status changed meanwhile."""
        rows = ProviderBatch.objects.filter(pk=self.batch.pk, claim=self.claim)
        changes = {"tries": 0, "error": "", **changes}
        if not rows.transition(
            sources=[self.batch.status], target=target, by=self.actor, reason=reason, next_poll_at=Now(), **changes
        ):
            raise LeaseLost
        self._refresh()

    def end(self, target: str, reason: str, **changes: Any) -> None:
        self.move(target, reason, ended_at=Now(), claim=None, lease_until=None, **changes)

    def wait(self, seconds: float, **changes: Any) -> None:
        """Release the lease. The batch is due after these seconds, or at once if its status changed meanwhile."""
        rows = ProviderBatch.objects.filter(pk=self.batch.pk, claim=self.claim)
        later = Now() + timedelta(seconds=seconds)
        rows.filter(status=self.batch.status).update(next_poll_at=later)
        rows.update(claim=None, lease_until=None, **changes)

    def renew(self) -> None:
        rows = ProviderBatch.objects.filter(pk=self.batch.pk, claim=self.claim)
        rows.update(lease_until=Greatest(F("lease_until"), Now() + timedelta(seconds=LEASE_S)))

    def _refresh(self) -> None:
        self.batch = ProviderBatch.objects.select_related(*RELATED).get(pk=self.batch.pk)

    def list_held_claims(self, *, after: int = 0, among: Collection[int] | None = None) -> list[Claim]:
        """Return the next CHUNK_SIZE claims that this batch still holds, by trial id. `among` limits the trials."""
        held = Trial.objects.filter(
            run=self.batch.run_id, status=Trial.Status.RUNNING, token=self.batch.key, pk__gt=after
        )
        trials = held if among is None else held.filter(pk__in=among)
        return [
            Claim(
                trial_id=trial.pk,
                counter_keys=self.counter_keys,
                token=self.batch.key,
                item_id=trial.item_id or 0,
                dimension_id=trial.dimension_id,
                sample_idx=trial.sample_idx,
                attempts=trial.attempts,
                yields=trial.yields,
                reserved_usd=trial.reserved_usd,
                batched=True,
                without_schema=trial.error_class == ErrorClass.RESPONSE_FORMAT_UNSUPPORTED,
            )
            for trial in trials.order_by("pk")[:CHUNK_SIZE]
        ]

    def release_trials(self, *, wait_s: float | None = None) -> int:
        """Release all trials that the batch still holds, because no call was made for them. Return how many."""
        total = 0
        while claims := self.list_held_claims():
            results = [Result(claim, Trial.Status.PENDING, released=True, wait_s=wait_s) for claim in claims]
            total += record_each(results, self.worker_id)
        return total

    def stop_run(self, reason: str) -> None:
        """Stop the run, because it would only create the same batch again."""
        rows = Run.objects.filter(pk=self.batch.run_id)
        rows.transition(
            sources=[Run.Status.RUNNING], target=Run.Status.STOPPED, by="engine", reason=reason, stop_reason=reason
        )


RELATED = ("endpoint", "run__experiment", "run__condition__model")


def take_lease(worker_id: int) -> BatchLease | None:
    """Take the lease of the batch that has been due longest by the database's clock. Return None if none is due."""
    claim = uuid.uuid4()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(TAKE_LEASE, [claim, worker_id, LEASE_S, list(ProviderBatch.OPEN)])
        row = cursor.fetchone()
    if row is None:
        return None
    return BatchLease(ProviderBatch.objects.select_related(*RELATED).get(pk=row[0]), worker_id, claim)
