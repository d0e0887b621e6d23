"""The state of a model that calls show, shared by all workers: refused schemas, and time-outs of local servers.

A provider that takes no strict schema for a model is not asked with one for each trial. A local server that hangs on
one request keeps the model loaded, and hangs on the next request as well. So a worker unloads a model after three
time-outs in a row, over all workers. Loading the model again helps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection
from django.db.models.functions import Now

from evalsite.lib.history import Actor, record_changes
from runs_app.llm.calls import ErrorClass
from runs_app.models import Attempt, LanguageModel

REMEMBER_S = 60.0  # By then every worker has read the model's row, or a person has changed it.
SCHEMA_ASPECT = "strict JSON schema"


class RecentRefusals:
    """The models that refused a schema in this process, until their rows are read again."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}

    def add(self, model_id: int) -> None:
        self._until[model_id] = time.monotonic() + REMEMBER_S

    def __contains__(self, model_id: int | None) -> bool:
        return model_id is not None and self._until.get(model_id, 0.0) > time.monotonic()


def was_refused(calls: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the first of these calls was refused for its schema, and the second, without one, was answered.

    Without the answer, the schema may not be the reason.
    """
    return (
        len(calls) == 2
        and calls[0].get("error_class") == ErrorClass.RESPONSE_FORMAT_UNSUPPORTED
        and calls[1]["outcome"] == Attempt.Outcome.OK
    )


def remember_refusal(model_id: int, message: str, actor: Actor) -> None:
    """Record the refusal on the model, once."""
    rows = LanguageModel.objects.filter(pk=model_id, schema_refused_at=None)
    if rows.update(schema_refused_at=Now(), schema_refusal=message[:200]):
        _record_refusal(model_id, "not refused", "refused", actor, message)


def forget_refusal(model: LanguageModel, *, by: Actor, reason: str = "") -> bool:
    """Let the next call ask with a schema again. Return False if no refusal was recorded."""
    rows = LanguageModel.objects.filter(pk=model.pk).exclude(schema_refused_at=None)
    if not rows.update(schema_refused_at=None, schema_refusal=""):
        return False
    _record_refusal(model.pk, "refused", "not refused", by, reason)
    return True


def _record_refusal(model_id: int, before: str, after: str, actor: Actor, reason: str) -> None:
    record_changes([(LanguageModel(pk=model_id), before, after)], by=actor, reason=reason, aspect=SCHEMA_ASPECT)


TIMEOUTS_UNTIL_EVICTION = 3

# A single statement, so that exactly one worker sees the third time-out. Then the count starts again.
COUNT_TIMEOUT = """
UPDATE runs_app_languagemodel SET stalls = CASE WHEN stalls + 1 >= %s THEN 0 ELSE stalls + 1 END
WHERE id = %s RETURNING stalls
"""


def note_call(model_id: int, call: Mapping[str, Any], actor: str) -> bool:
    """Count a time-out, or reset the count after an answer. Return True for the third time-out in a row.

    `call` has attempt columns. Only an answer of the server resets the count, not a cached answer or a released call.
    """
    if call.get("error_class") == ErrorClass.TIMEOUT:
        return _count_timeout(model_id, actor)
    if call["outcome"] == Attempt.Outcome.OK:
        LanguageModel.objects.filter(pk=model_id, stalls__gt=0).update(stalls=0)
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
