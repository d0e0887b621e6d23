"""A worker's cycle: write the received results and claim for the free slots, in one transaction per endpoint.

The cycle returns when all its commits are on disk, so no call starts without a durable claim.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from runs_app.engine.admission import Claim, WorkerCapacity, claim_trials, compute_claim_limits
from runs_app.engine.claim_order import ClaimPositions
from runs_app.engine.prepared_sql import wait_for_disk
from runs_app.engine.recorder import Result, apply_changes, group_by_endpoint, split_batches, write_and_lock
from runs_app.engine.recovery import OUTAGES, claim_run_by_run, record_each

logger = logging.getLogger("evalsite.drain")


@dataclass(frozen=True, slots=True)
class CycleResult:
    """A cycle's results: recorded results that still held their trial, new claims, and calls allowed in flight."""

    recorded: int
    claims: list[Claim]
    levels: dict[int, int]  # Of this worker, by endpoint.


def run_cycle(results: Sequence[Result], worker_id: int, capacity: WorkerCapacity) -> CycleResult:
    """Run one cycle. The order of the endpoints is random, so that none of them always waits for the others."""
    received = group_by_endpoint(results)
    limits = compute_claim_limits(capacity, Counter(result.claim.counter_keys.endpoint_id for result in results))
    recorded, claims = 0, []
    endpoint_ids = [*{*received, *(key for key, limit in limits.items() if limit.claims)}]
    random.shuffle(endpoint_ids)
    for endpoint_id in endpoint_ids:
        max_claims = limits[endpoint_id].claims if endpoint_id in limits else 0
        n, new_claims = _run_endpoint_cycle(
            endpoint_id, received.get(endpoint_id, []), worker_id, max_claims, capacity.positions
        )
        recorded += n
        claims += new_claims
    if endpoint_ids:
        wait_for_disk()
    return CycleResult(recorded, claims, {key: limit.level for key, limit in limits.items()})


def _run_endpoint_cycle(
    endpoint_id: int, results: Sequence[Result], worker_id: int, limit: int, positions: ClaimPositions
) -> tuple[int, list[Claim]]:
    *earlier_batches, last_batch = list(split_batches(results)) or [[]]
    recorded = sum(record_each(batch, worker_id) for batch in earlier_batches)
    try:
        held, claims = _record_and_claim(endpoint_id, last_batch, worker_id, limit, positions)
        return recorded + held, claims
    except OUTAGES:
        raise
    except Exception:  # An answer that cannot be stored or a run that cannot be claimed must not stop the others.
        logger.exception("endpoint %s: recording answers and claiming runs one by one after an error", endpoint_id)
        recorded += record_each(last_batch, worker_id) if last_batch else 0
        return recorded, claim_run_by_run(endpoint_id, worker_id, limit) if limit > 0 else []


def _record_and_claim(
    endpoint_id: int, results: Sequence[Result], worker_id: int, limit: int, positions: ClaimPositions
) -> tuple[int, list[Claim]]:
    with transaction.atomic():
        changes, counters = write_and_lock(endpoint_id, results, worker_id, claiming=limit > 0)
        if counters is None:
            return 0, []
        apply_changes(counters, changes)
        claims = claim_trials(counters, worker_id, limit, positions) if limit > 0 else []
        counters.write_and_commit()
    return len(changes.held), claims
