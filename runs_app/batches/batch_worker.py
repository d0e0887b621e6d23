"""The batch worker: the tasks of a worker that create provider batches and continue those that are due.

A batch claims trials as a worker does, under the same locks and budget. Its key is the token of its claims. They have
no leases: only their batch ends them, even after a week without a worker. They count against the budget, but not as
calls in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.module_loading import import_string

from evalsite.lib.sql import fetch_rows
from runs_app.batches.batch_lease import LEASE_S, BatchLease, LeaseLost, take_lease
from runs_app.batches.collection import (
    collect_results,
    end_unsubmitted,
    handle_unknown_batch,
    poll_batch,
    take_cancel_step,
)
from runs_app.batches.protocol import MAX_LOOKUPS, BatchApi, BatchFile, compute_batch_size, compute_retry_wait_s
from runs_app.batches.submission import Submission
from runs_app.engine.admission import cannot_afford_trial, claim_shares, pause_for_budget
from runs_app.engine.counters import CounterKeys, LockedCounters, lock_counters
from runs_app.engine.jobs import INTERNAL_ERROR_MESSAGE
from runs_app.engine.recovery import OUTAGES, stop_broken
from runs_app.llm import gateway
from runs_app.llm.calls import CallFailure, CallRequest, ErrorClass
from runs_app.llm.providers import PROVIDERS
from runs_app.models import Endpoint, LanguageModel, ProviderBatch

logger = logging.getLogger("evalsite.drain")


S = ProviderBatch.Status


POLL_S = 1.0  # The time between two looks for due batches.


MAX_CONCURRENT = 3  # One worker handles several batches at once, so that a long upload delays no other batch.


RUN_STOPPED = "Its run or its endpoint was stopped before the submission."


# A round of an adaptive run is one batch. The first decisions of a round may already add cases. They wait for the next
# batch while answers of the run are collected or a point awaits its decision.
RUNS_WITH_WORK = """
SELECT r.id, r.experiment_id, m.endpoint_id FROM runs_app_run r
JOIN runs_app_condition c ON c.id = r.condition_id
JOIN runs_app_languagemodel m ON m.id = c.model_id
JOIN runs_app_endpoint p ON p.id = m.endpoint_id
JOIN runs_app_experiment e ON e.id = r.experiment_id
WHERE r.status = 'running' AND r.is_batched AND r.n_pending > 0
    AND p.is_active AND coalesce(p.paused_until <= clock_timestamp(), true) AND p.batch_api <> 'none'
    AND p.batch_max_open > (SELECT count(*) FROM runs_app_providerbatch b
        WHERE b.endpoint_id = p.id AND b.status = ANY(%s))
    AND EXISTS (SELECT FROM runs_app_trial t WHERE t.run_id = r.id AND t.status = 'pending'
        AND (t.not_before IS NULL OR t.not_before <= clock_timestamp()))
    AND NOT EXISTS (SELECT FROM runs_app_point q WHERE q.run_id = r.id AND q.status = 'open' AND (
        EXISTS (SELECT FROM runs_app_providerbatch b WHERE b.run_id = r.id AND b.status = 'collecting')
        OR NOT EXISTS (SELECT FROM unnest(q.items[1:least(q.n_planned, q.n_items)]) AS one (item)
            JOIN runs_app_trial t ON t.run_id = q.run_id AND t.item_id = one.item
                AND t.dimension_id IS NOT DISTINCT FROM q.dimension_id
            WHERE t.status IN ('pending', 'running'))))
ORDER BY e.priority DESC, r.id
"""


@dataclass(slots=True)
class BatchWorker:
    """A worker's tasks for batches. `in_database` runs a function in the worker's database thread."""

    in_database: Callable[[Callable[[], Any]], Awaitable[Any]]
    worker_id: int
    recorded: int = 0  # The number of results written, over all leases.
    _files: dict[int, BatchFile] = field(default_factory=dict)

    async def run(self) -> None:
        """Handle batches until cancelled. The next worker continues unfinished steps."""
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                try:
                    await self._start_due(tasks)
                except Exception:  # An error here must not end the worker or the batches in progress.
                    logger.exception("due batches could not be fetched")
                await asyncio.sleep(POLL_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for batch_file in self._files.values():
                batch_file.file.close()

    async def _start_due(self, tasks: set[asyncio.Task[None]]) -> None:
        """Create new batches, and continue due batches up to the limit of tasks."""
        await self.sql(admit_batches)
        while len(tasks) < MAX_CONCURRENT and (lease := await self.sql(take_lease, self.worker_id)):
            task = asyncio.create_task(self._handle_batch(lease))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def sql(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return await self.in_database(functools.partial(work, *arguments, **named))

    async def step(self) -> bool:
        """Continue one due batch as far as possible. Return whether a batch was due."""
        lease: BatchLease | None = await self.sql(take_lease, self.worker_id)
        if lease is not None:
            await self._handle_batch(lease)
        return lease is not None

    async def _handle_batch(self, lease: BatchLease) -> None:
        try:
            async with self._renew_lease(lease):
                await self._advance(lease)
        finally:
            self.recorded += lease.recorded

    async def _advance(self, lease: BatchLease) -> None:
        try:
            api = build_batch_api(lease.batch.endpoint)
            while await self._take_step(lease, api):
                pass
        except LeaseLost:
            await self.sql(lease.wait, 0)
        except CallFailure as failure:
            await self.sql(_schedule_retry, lease, failure)
        except asyncio.CancelledError:  # Release the lease, so that another worker need not wait for its end.
            await self.sql(lease.wait, 0)
            raise
        except Exception:
            logger.exception("batch %s failed with an unexpected error", lease.batch.pk)
            await self.sql(_schedule_retry, lease, CallFailure(ErrorClass.INTERNAL_ERROR, INTERNAL_ERROR_MESSAGE))

    async def _take_step(self, lease: BatchLease, api: BatchApi) -> bool:
        """Take one step. Return whether the next step can follow at once."""
        if await self.sql(lease.should_cancel):
            await self.sql(end_unsubmitted, lease, RUN_STOPPED)
            return False
        submission = Submission(lease, api, self.sql, self._files)
        match lease.batch.status:
            case S.PREPARING:
                return await submission.prepare()
            case S.SUBMITTING:
                return await submission.submit()
            case S.SUBMITTED:
                return await poll_batch(lease, api, self.sql)
            case S.COLLECTING:
                return await collect_results(lease, api, self.sql)
            case S.CANCELLING:
                return await take_cancel_step(lease, api, self.sql, submission)
        return False

    @contextlib.asynccontextmanager
    async def _renew_lease(self, lease: BatchLease) -> AsyncIterator[None]:
        async def renew() -> None:
            while True:
                await asyncio.sleep(LEASE_S / 4)
                await self.sql(lease.renew)

        renewal = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewal.cancel()


def _schedule_retry(lease: BatchLease, failure: CallFailure) -> None:
    """Schedule another try, or end a batch that its provider does not find. A new batch may take time to appear."""
    tries = lease.batch.tries + 1
    if failure.error_class == ErrorClass.NOT_FOUND and lease.batch.provider_id and tries >= MAX_LOOKUPS:
        handle_unknown_batch(lease)
    else:
        lease.wait(compute_retry_wait_s(tries, failure.retry_after_s), tries=tries, error=str(failure))


def build_batch_api(endpoint: Endpoint) -> BatchApi:
    """Return the batch API of an endpoint, with its address and key. Raise CallFailure if one of them is missing."""
    request = CallRequest(endpoint.provider, "", endpoint.base_url or None, endpoint.key_env or None, [])
    url, key = gateway.resolve_access(request)
    api: BatchApi = import_string(PROVIDERS[endpoint.provider].batch_api)(url, key)
    return api


def has_due_batches(within_s: float = 0.0) -> bool:
    """Return whether a batch can be created now, or continued within these seconds."""
    if list_runs_with_work():
        return True
    is_free = Q(lease_until=None) | Q(lease_until__lte=Now())
    end = Now() + timedelta(seconds=within_s)
    return ProviderBatch.objects.filter(is_free, status__in=ProviderBatch.OPEN, next_poll_at__lte=end).exists()


def admit_batches() -> list[int]:
    """Create at most one batch for each run that may have one now. Return their ids."""
    batches = (_admit_or_stop(counter_keys) for counter_keys in list_runs_with_work())
    return [batch.pk for batch in batches if batch]


def _admit_or_stop(counter_keys: CounterKeys) -> ProviderBatch | None:
    """Create a batch for a run. Stop the run with a reason if it cannot be claimed, so that the others continue."""
    try:
        with transaction.atomic():
            counters = lock_counters(counter_keys.endpoint_id, [counter_keys.run_id], batched=True)
            if counters is None or counter_keys.run_id not in counters.runs:
                return None
            endpoint = Endpoint.objects.get(pk=counter_keys.endpoint_id)
            batch = None
            if counters.endpoint.is_open and endpoint.batches.open().count() < endpoint.batch_max_open:
                batch = _claim_batch(counters, counter_keys, endpoint)
            counters.write_changes()  # This stops the run if its failure limit was lowered meanwhile.
            return batch
    except OUTAGES:
        raise
    except Exception as error:
        logger.exception("run %s cannot be batched", counter_keys.run_id)
        stop_broken(counter_keys, "Its trials could not be claimed", error)
        return None


def list_runs_with_work() -> list[CounterKeys]:
    """Return the runs for which a batch may be created now, by descending priority."""
    return [CounterKeys(*row) for row in fetch_rows(RUNS_WITH_WORK, [list(ProviderBatch.OPEN)])]


def _claim_batch(counters: LockedCounters, counter_keys: CounterKeys, endpoint: Endpoint) -> ProviderBatch | None:
    most, budgets = endpoint.batch_max_requests, counters.get_budgets()
    (run_demand,) = counters.list_demands()
    demand = replace(run_demand, in_flight=0, max_concurrency=most)
    if cannot_afford_trial(demand, budgets):
        pause_for_budget([demand])
    n = compute_batch_size(demand.pending, most, budgets[counter_keys.experiment_id], demand.reserve_usd)
    batch = ProviderBatch(run_id=counter_keys.run_id, endpoint=endpoint, next_poll_at=Now())
    batch.n_requests = len(claim_shares(counters, {counter_keys.run_id: n}, None, batch=batch.key)) if n else 0
    if not batch.n_requests:
        return None
    batch.reserved_usd = demand.reserve_usd * batch.n_requests
    batch.discount = LanguageModel.objects.get(conditions__runs=counter_keys.run_id).batch_discount
    batch.save()
    return batch
