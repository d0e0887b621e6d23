"""A worker's recovery from broken connections, answers that the database refuses, and broken runs.

A worker claims for all runs of an endpoint in one fast statement, and records results in batches. If that fails, it
claims run by run, and records answer by answer, each in its own transaction. This shows which run or answer is broken,
and the others go on. A run whose trials cannot be claimed, or their requests prepared, is stopped with a reason.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from evalsite.lib.sql import fetch_rows
from runs_app.engine.admission import Claim, claim_trials
from runs_app.engine.counters import RUNNING_TRIALS, CounterKeys, lock_counter_rows, lock_counters
from runs_app.engine.recorder import Result, record_results
from runs_app.llm.calls import ErrorClass
from runs_app.models import Attempt, Run, Trial

logger = logging.getLogger("evalsite.drain")

OUTAGES = (OperationalError, InterfaceError)
CLAIMS_OF_WORKER = f"""
SELECT t.id, r.id, r.experiment_id, m.endpoint_id, t.token, t.item_id, t.dimension_id, t.sample_idx, t.attempts,
    t.yields, t.reserved_usd, r.reserve_tokens
FROM runs_app_run r
CROSS JOIN LATERAL {RUNNING_TRIALS} t
JOIN runs_app_condition c ON c.id = r.condition_id
JOIN runs_app_languagemodel m ON m.id = c.model_id
WHERE r.n_running > 0 AND t.worker_id = %s
"""  # noqa: S608 - a constant


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
    claims = [_build_claim(row) for row in fetch_rows(CLAIMS_OF_WORKER, [worker_id])]
    unknown = [claim for claim in claims if claim.key not in known_keys]
    return record_results([Result(claim, Trial.Status.PENDING, released=True) for claim in unknown], worker_id)


def _build_claim(row: tuple[Any, ...]) -> Claim:
    trial_id, run_id, experiment_id, endpoint_id, *columns = row  # The columns have the order of a claim's fields.
    return Claim(trial_id, CounterKeys(run_id, experiment_id, endpoint_id), *columns)


def claim_run_by_run(endpoint_id: int, worker_id: int, limit: int) -> list[Claim]:
    """Claim at most `limit` trials run by run, after the claim for all runs failed. Stop each run that fails alone."""
    claims: list[Claim] = []
    runs = Run.objects.filter(status=Run.Status.RUNNING, n_pending__gt=0, is_batched=False)
    of_endpoint = runs.filter(condition__model__endpoint=endpoint_id).order_by("pk")
    keys = of_endpoint.values_list("pk", "experiment", "condition__model__endpoint")
    for counter_keys in [CounterKeys(*row) for row in keys]:
        if len(claims) >= limit:
            break
        try:
            with transaction.atomic():
                if counters := lock_counters(endpoint_id, [counter_keys.run_id]):
                    new_claims = claim_trials(counters, worker_id, limit - len(claims))
                    counters.write_changes()
                    claims += new_claims
        except OUTAGES:
            raise
        except Exception as error:  # Includes ArithmeticError and ValueError, which impossible numbers raise.
            logger.exception("run %s cannot be claimed", counter_keys.run_id)
            stop_broken(counter_keys, "Its trials could not be claimed", error)
    return claims


def stop_broken(counter_keys: CounterKeys, problem: str, error: Exception) -> None:
    """Stop a run with this reason. A user may resume it; it stops again if its design is still broken."""
    reason = f"{problem}: {_get_first_line(error)}. Correct the design, then resume the run."
    try:
        with transaction.atomic():
            lock_counter_rows({counter_keys})
            Run.objects.filter(pk=counter_keys.run_id).transition(
                sources=[Run.Status.RUNNING], target=Run.Status.STOPPED, by="engine", reason=reason, stop_reason=reason
            )
    except OUTAGES:
        raise
    except DatabaseError:  # The run fails again at the next claim. Meanwhile the other runs go on.
        logger.exception("run %s could not be stopped", counter_keys.run_id)


def _get_first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".")
