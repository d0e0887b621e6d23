"""Runs that cannot be claimed or prepared. Each is stopped with a reason, and the endpoint's other runs go on.

A worker claims for all runs of an endpoint in one fast statement. If that fails, it claims run by run, each in a
transaction of its own. This shows which run is at fault.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from django.db import DatabaseError, transaction

from runs_app.engine import outcomes
from runs_app.engine.admission import Claim, claim_trials
from runs_app.engine.counters import CounterKeys, lock_rows
from runs_app.engine.database_recovery import OUTAGES, record_each
from runs_app.engine.design_cache import DesignCache
from runs_app.engine.jobs import Job, build_jobs
from runs_app.engine.locked_counters import lock_counters
from runs_app.engine.prepared_sql import fetch_rows
from runs_app.engine.recorder import Result
from runs_app.models import Run

logger = logging.getLogger("evalsite.drain")

CLAIMABLE_RUNS = """
SELECT r.id, r.experiment_id, m.endpoint_id FROM runs_app_run r
JOIN runs_app_condition c ON c.id = r.condition_id JOIN runs_app_languagemodel m ON m.id = c.model_id
WHERE r.status = 'running' AND r.n_pending > 0 AND NOT r.is_batched AND m.endpoint_id = %s
ORDER BY r.id
"""


def claim_run_by_run(endpoint_id: int, worker_id: int, limit: int) -> list[Claim]:
    """Claim at most `limit` trials run by run, after one claim for all runs failed.

    Stop each run whose claim also fails alone.
    """
    claims: list[Claim] = []
    for counter_keys in [CounterKeys(*row) for row in fetch_rows(CLAIMABLE_RUNS, endpoint_id)]:
        if len(claims) >= limit:
            break
        try:
            with transaction.atomic():
                if counters := lock_counters(endpoint_id, [counter_keys.run_id]):
                    new = claim_trials(counters, worker_id, limit - len(claims))
                    counters.settle()
                    claims += new
        except OUTAGES:
            raise
        except Exception as fault:  # Includes ArithmeticError and ValueError, which impossible numbers raise.
            logger.exception("run %s cannot be claimed", counter_keys.run_id)
            stop_broken(counter_keys, "Its trials could not be claimed", fault)
    return claims


def prepare_jobs(claims: Sequence[Claim], designs: DesignCache, worker_id: int) -> list[Job]:
    """Return the jobs of these claims. Stop a run whose requests cannot be prepared, and release its claims."""
    try:
        return build_jobs(claims, designs)
    except OUTAGES:
        raise
    except Exception:
        logger.exception("requests of %s claims could not be prepared together", len(claims))
    by_run: dict[CounterKeys, list[Claim]] = defaultdict(list)
    for one in claims:
        by_run[one.counter_keys].append(one)
    jobs: list[Job] = []
    for counter_keys, some in by_run.items():
        try:
            jobs += build_jobs(some, designs)
        except OUTAGES:
            raise
        except Exception as fault:
            logger.exception("requests of run %s cannot be prepared", counter_keys.run_id)
            stop_broken(counter_keys, "Its requests could not be prepared", fault)
            released = outcomes.conclude_release()
            record_each([Result(one, released.status, trial=released.trial, unspent=True) for one in some], worker_id)
    return jobs


def stop_broken(counter_keys: CounterKeys, what: str, fault: Exception) -> None:
    """Stop a run with this reason. It may be resumed, and stops again if its design is still broken."""
    reason = f"{what}: {_first_line(fault)}. Correct the design, then resume the run."
    try:
        with transaction.atomic():
            lock_rows({counter_keys})
            Run.objects.filter(pk=counter_keys.run_id).transition(
                sources=[Run.Status.RUNNING], target=Run.Status.STOPPED, by="engine", reason=reason, stop_reason=reason
            )
    except OUTAGES:
        raise
    except DatabaseError:  # The run fails again at the next claim. Meanwhile the other runs go on.
        logger.exception("run %s could not be stopped", counter_keys.run_id)


def _first_line(fault: Exception) -> str:
    lines = str(fault).splitlines()
    return (lines[0] if lines else type(fault).__name__)[:300].rstrip(".")
