"""Stall detection: a model on a local server is unloaded after three time-outs in a row, over all workers.

A local server that hangs on one request keeps the model loaded, and hangs on the next request as well. Loading the
model anew helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection

from datasets_app.models.history import record_changes
from runs_app.llm.calls import ErrorClass
from runs_app.models import Attempt, LanguageModel

IN_A_ROW = 3

# One statement each, so that exactly one of all workers meets the third time-out. Then the count starts again.
TIMED_OUT = """
UPDATE runs_app_languagemodel SET stalls = CASE WHEN stalls + 1 >= %s THEN 0 ELSE stalls + 1 END
WHERE id = %s RETURNING stalls
"""
ANSWERED = "UPDATE runs_app_languagemodel SET stalls = 0 WHERE id = %s AND stalls > 0"


def note_call(model_id: int, call: Mapping[str, Any], actor: str) -> bool:
    """Note the outcome of a call, by its attempt's columns. Return True for the third time-out in a row.

    Only an answer of the server itself resets the count, not a cached answer or a call given back.
    """
    if call.get("error_class") == ErrorClass.TIMEOUT:
        return _timed_out(model_id, actor)
    if call["outcome"] == Attempt.Outcome.OK:
        with connection.cursor() as cursor:
            cursor.execute(ANSWERED, [model_id])
    return False


def _timed_out(model_id: int, actor: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(TIMED_OUT, [IN_A_ROW, model_id])
        row = cursor.fetchone()
    if row is None or row[0] > 0:
        return False
    reason = f"{IN_A_ROW} time-outs in a row"
    record_changes([(LanguageModel(pk=model_id), "loaded", "evicted")], by=actor, reason=reason, what="local server")
    return True
