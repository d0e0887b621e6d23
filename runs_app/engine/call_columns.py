"""The columns of a call that the recorder writes, read from the models, and the SQL that inserts attempts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django.db import models

from runs_app.llm.calls import REPLY_FIELDS
from runs_app.models import Attempt, Trial, WorkUnit

POSTGRES_TYPES = {
    "CharField": "text",
    "TextField": "text",
    "BooleanField": "bool",
    "SmallIntegerField": "int",
    "IntegerField": "int",
    "DecimalField": "numeric",
}


def _list_columns(model: type[models.Model], exclude: Collection[str]) -> dict[str, str]:
    """Return the columns of a table with their PostgreSQL types, without keys, times and the names in `exclude`."""
    fields = {field.name: field.get_internal_type() for field in model._meta.concrete_fields}
    return {
        name: POSTGRES_TYPES[kind] for name, kind in fields.items() if name not in exclude and kind in POSTGRES_TYPES
    }


ATTEMPT_COLUMNS = _list_columns(Attempt, ())
CLAIM_COLUMNS = {field.name for field in WorkUnit._meta.fields} - {"error_class", "error"}
TRIAL_COLUMNS = _list_columns(Trial, {*CLAIM_COLUMNS, "sample_idx", "place"})
# The columns that a late answer completes.
CALL_COLUMNS = {name: ATTEMPT_COLUMNS[name] for name in ("raw_response", "request_hash", *REPLY_FIELDS)}


def list_column_expressions(columns: Mapping[str, str]) -> list[str]:
    """Return the SQL expressions of these columns.

    A missing text becomes empty and a missing boolean becomes false. Only a raw response may be NULL.
    """
    defaults = {"text": "''", "bool": "false"}
    return [
        f"coalesce(r.{name}, {defaults[kind]})" if kind in defaults and name != "raw_response" else f"r.{name}"
        for name, kind in columns.items()
    ]


def format_column_types(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


INSERT_ATTEMPTS = f"""
INSERT INTO runs_app_attempt (trial_id, run_id, token, worker_id, started_at, finished_at, {", ".join(ATTEMPT_COLUMNS)})
SELECT r.trial, r.run, r.token, r.worker, clock_timestamp() - coalesce(r.latency_ms, 0) * interval '1 millisecond',
    clock_timestamp(), {", ".join(list_column_expressions(ATTEMPT_COLUMNS))}
FROM json_to_recordset(%s::json) r(trial bigint, run bigint, token uuid, worker bigint,
    {format_column_types(ATTEMPT_COLUMNS)})
"""  # noqa: S608 - built from the names above
