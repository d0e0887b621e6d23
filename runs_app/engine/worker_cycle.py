"""A worker's cycle: write the received results and claim for the free slots, in one transaction per endpoint."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from runs_app.engine.admission import Claim, WorkerCapacity, claim_limits, claim_trials
from runs_app.engine.broken_runs import claim_run_by_run
from runs_app.engine.database_recovery import OUTAGES, record_each
from runs_app.engine.locked_counters import lock_counters
from runs_app.engine.recorder import Result, apply_changes, group_by_endpoint, run_ids, split_batches, write_trials

logger = logging.getLogger("evalsite.drain")


@dataclass(frozen=True, slots=True)
class CycleResult:
    """A cycle's counts: results that still held their trial, the new claims, and the calls allowed in flight."""

    recorded: int
    claims: list[Claim]
    levels: dict[int, int]  # By endpoint, in the drain that ran this cycle.


def run_cycle(results: Sequence[Result], worker_id: int, capacity: WorkerCapacity) -> CycleResult:
    """Run one cycle. Endpoints have no fixed order, so that none is always served first."""
    received = group_by_endpoint(results)
    limits = claim_limits(capacity, Counter(result.claim.counter_keys.endpoint_id for result in results))
    recorded, claims = 0, []
    for endpoint_id in {*received, *(key for key, one in limits.items() if one.claims)}:
        wanted = limits[endpoint_id].claims if endpoint_id in limits else 0
        n, new = _run_endpoint_cycle(endpoint_id, received.get(endpoint_id, []), worker_id, wanted)
        recorded += n
        claims += new
    return CycleResult(recorded, claims, {key: one.level for key, one in limits.items()})


def _run_endpoint_cycle(
    endpoint_id: int, results: Sequence[Result], worker_id: int, limit: int
) -> tuple[int, list[Claim]]:
    *before, last = list(split_batches(results)) or [[]]
    recorded = sum(record_each(portion, worker_id) for portion in before)
    try:
        held, claims = _record_and_claim(endpoint_id, last, worker_id, limit)
        return recorded + held, claims
    except OUTAGES:
        raise
    except Exception:  # An answer that cannot be stored, or a run that cannot be claimed: neither may stop the others.
        logger.exception("endpoint %s: recording answers and claiming runs one by one after an error", endpoint_id)
        recorded += record_each(last, worker_id) if last else 0
        return recorded, claim_run_by_run(endpoint_id, worker_id, limit) if limit > 0 else []


def _record_and_claim(
    endpoint_id: int, results: Sequence[Result], worker_id: int, limit: int
) -> tuple[int, list[Claim]]:
    with transaction.atomic():
        entries = write_trials(results, worker_id)
        counters = lock_counters(endpoint_id, run_ids(results), claiming=limit > 0)
        if counters is None:
            return len(entries.held), []
        apply_changes(counters, entries)
        claims = claim_trials(counters, worker_id, limit) if limit > 0 else []
        counters.settle()
    return len(entries.held), claims
