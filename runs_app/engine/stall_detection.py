"""Stall detection: a worker unloads a model on a local server after three time-outs in a row, over all workers.

A local server that hangs on one request keeps the model loaded, and hangs on the next request as well. Loading the
model again helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection

from evalsite.lib.history import record_changes
from runs_app.llm.calls import ErrorClass
from runs_app.models import Attempt, LanguageModel

TIMEOUTS_UNTIL_EVICTION = 3

# A single statement, so that exactly one worker sees the third time-out. Then the count starts again.
COUNT_TIMEOUT = """
UPDATE runs_app_languagemodel SET stalls = CASE WHEN stalls + 1 >= %s THEN 0 ELSE stalls + 1 END
WHERE id = %s RETURNING stalls
"""
RESET_TIMEOUTS = "UPDATE runs_app_languagemodel SET stalls = 0 WHERE id = %s AND stalls > 0"


def note_call(model_id: int, call: Mapping[str, Any], actor: str) -> bool:
    """Count a time-out, or reset the count after an answer. Return True for the third time-out in a row.

    `call` has attempt columns. Only an answer of the server resets the count, not a cached answer or a released call.
    """
    if call.get("error_class") == ErrorClass.TIMEOUT:
        return _count_timeout(model_id, actor)
    if call["outcome"] == Attempt.Outcome.OK:
        with connection.cursor() as cursor:
            cursor.execute(RESET_TIMEOUTS, [model_id])
    return False


def _count_timeout(model_id: int, actor: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(COUNT_TIMEOUT, [TIMEOUTS_UNTIL_EVICTION, model_id])
        row = cursor.fetchone()
    if row is None or row[0] > 0:
        return False
    reason = f"{TIMEOUTS_UNTIL_EVICTION} time-outs in a row"
    record_changes([(LanguageModel(pk=model_id), "loaded", "evicted")], by=actor, reason=reason, aspect="local server")
    return True
