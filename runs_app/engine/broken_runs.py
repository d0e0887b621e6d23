"""Broken runs: their trials cannot be claimed, or their requests prepared. Such a run is stopped with a reason.

A worker claims for all runs of an endpoint in one fast statement. If that fails, it claims run by run, each in its own
transaction. This shows which run is broken, and the endpoint's other runs go on.
"""

from __future__ import annotations

import logging

from django.db import DatabaseError, transaction

from runs_app.engine.admission import Claim, claim_trials
from runs_app.engine.counters import CounterKeys, lock_counter_rows
from runs_app.engine.database_recovery import OUTAGES
from runs_app.engine.locked_counters import lock_counters
from runs_app.engine.prepared_sql import fetch_prepared
from runs_app.models import Run

logger = logging.getLogger("evalsite.drain")

CLAIMABLE_RUNS = """
SELECT r.id, r.experiment_id, m.endpoint_id FROM runs_app_run r
JOIN runs_app_condition c ON c.id = r.condition_id JOIN runs_app_languagemodel m ON m.id = c.model_id
WHERE r.status = 'running' AND r.n_pending > 0 AND NOT r.is_batched AND m.endpoint_id = %s
ORDER BY r.id
"""


def claim_run_by_run(endpoint_id: int, worker_id: int, limit: int) -> list[Claim]:
    """Claim at most `limit` trials run by run, after the claim for all runs failed. Stop each run that fails alone."""
    claims: list[Claim] = []
    for counter_keys in [CounterKeys(*row) for row in fetch_prepared(CLAIMABLE_RUNS, endpoint_id)]:
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
