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


def run_cycle(results: Sequence[Result], worker_id: int, crew: WorkerCapacity) -> CycleResult:
    """Run one cycle. Endpoints have no fixed order, so that none is always served first."""
    came_in = group_by_endpoint(results)
    room = claim_limits(crew, Counter(result.claim.place.endpoint_id for result in results))
    wrote, claims = 0, []
    for endpoint_id in {*came_in, *(key for key, one in room.items() if one.claims)}:
        wanted = room[endpoint_id].claims if endpoint_id in room else 0
        n, new = _turn_at(endpoint_id, came_in.get(endpoint_id, []), worker_id, wanted)
        wrote += n
        claims += new
    return CycleResult(wrote, claims, {key: one.level for key, one in room.items()})


def _turn_at(endpoint_id: int, results: Sequence[Result], worker_id: int, room: int) -> tuple[int, list[Claim]]:
    *before, last = list(split_batches(results)) or [[]]
    wrote = sum(record_each(portion, worker_id) for portion in before)
    try:
        held, claims = _at_once(endpoint_id, last, worker_id, room)
        return wrote + held, claims
    except OUTAGES:
        raise
    except Exception:  # An answer that cannot be stored, or a run that cannot be claimed: neither may stop the others.
        logger.exception("endpoint %s: recording answers and claiming runs one by one after an error", endpoint_id)
        wrote += record_each(last, worker_id) if last else 0
        return wrote, claim_run_by_run(endpoint_id, worker_id, room) if room > 0 else []


def _at_once(endpoint_id: int, results: Sequence[Result], worker_id: int, room: int) -> tuple[int, list[Claim]]:
    with transaction.atomic():
        entries = write_trials(results, worker_id)
        books = lock_counters(endpoint_id, run_ids(results), claiming=room > 0)
        if books is None:
            return len(entries.held), []
        apply_changes(books, entries)
        claims = claim_trials(books, worker_id, room) if room > 0 else []
        books.settle()
    return len(entries.held), claims
