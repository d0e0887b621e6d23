"""A worker's recovery from broken connections and from answers that the database refuses."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, connection

from runs_app.engine.admission import Claim
from runs_app.engine.counters import CounterKeys
from runs_app.engine.recorder import Result, record_results
from runs_app.llm.calls import ErrorClass
from runs_app.models import Attempt, Trial

logger = logging.getLogger("evalsite.drain")

OUTAGES = (OperationalError, InterfaceError)
CLAIMS_OF_WORKER = """
SELECT t.id, r.id, r.experiment_id, m.endpoint_id, t.token, t.item_id, t.dimension_id, t.sample_idx, t.attempts,
    t.yields, t.reserved_usd, r.reserve_tokens
FROM runs_app_trial t
JOIN runs_app_run r ON r.id = t.run_id
JOIN runs_app_condition c ON c.id = r.condition_id
JOIN runs_app_languagemodel m ON m.id = c.model_id
WHERE t.status = 'running' AND t.worker_id = %s
"""


def is_out_of_resources(error: Exception) -> bool:
    """Return whether disk space, memory or connections are exhausted: class 53 of the error codes."""
    return (getattr(error.__cause__, "sqlstate", None) or "").startswith("53")


def describe_outage(error: Exception) -> str:
    """Return the database's problem with its first line, for the log and for people."""
    problem = "the database is out of resources" if is_out_of_resources(error) else "the database is unreachable"
    return f"{problem}: {str(error).splitlines()[0] if str(error) else 'no message'}"


def record_each(results: Sequence[Result], worker_id: int | None) -> int:
    """Record results as `record_results` does. An answer that the database refuses fails only its own trial."""
    try:
        return record_results(results, worker_id)
    except OUTAGES:
        raise
    except DatabaseError:
        if len(results) > 1:
            return sum(record_each([result], worker_id) for result in results)
        logger.exception("the answer of trial %s cannot be stored", results[0].claim.trial_id)
        return record_results([_drop_answer(results[0])], worker_id)


def _drop_answer(result: Result) -> Result:
    """Return a refused result without its answer: its calls and their costs can always be stored."""
    error_columns = {
        "error_class": ErrorClass.INTERNAL_ERROR,
        "error": "Its answer could not be stored; the log says why.",
    }
    outcome = Attempt.Outcome.PERMANENT
    calls = [
        {"call": call.get("call", 0), "cost_usd": call.get("cost_usd"), "outcome": outcome, **error_columns}
        for call in result.calls
    ]
    return Result(result.claim, Trial.Status.FAILED, trial=dict(error_columns), calls=calls)


def release_unknown_claims(worker_id: int, known_keys: Collection[tuple[int, UUID]]) -> int:
    """Release the claims that this worker never received, without counting the attempt. Return how many there were.

    If the connection breaks, a claim may be committed and never reach its worker. No call was made for it.
    """
    with connection.cursor() as cursor:
        cursor.execute(CLAIMS_OF_WORKER, [worker_id])
        claims = [_build_claim(row) for row in cursor.fetchall()]
    unknown = [claim for claim in claims if claim.key not in known_keys]
    return record_results([Result(claim, Trial.Status.PENDING, released=True) for claim in unknown], worker_id)


def _build_claim(row: tuple[Any, ...]) -> Claim:
    trial_id, run_id, experiment_id, endpoint_id, *columns = row  # The columns have the order of a claim's fields.
    return Claim(trial_id, CounterKeys(run_id, experiment_id, endpoint_id), *columns)
