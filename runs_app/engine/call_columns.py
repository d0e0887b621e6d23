"""The columns of a trial and of an attempt that a call fills, and the SQL that inserts an attempt."""

from __future__ import annotations

# The columns of a call that a trial and an attempt share, with their PostgreSQL types.
CALL_COLUMNS = {
    "error_class": "text",
    "error": "text",
    "raw_response": "text",
    "finish_reason": "text",
    "response_id": "text",
    "served_model": "text",
    "served_provider": "text",
    "request_hash": "text",
    "input_tokens": "int",
    "output_tokens": "int",
    "reasoning_tokens": "int",
    "cache_read_tokens": "int",
    "cache_write_tokens": "int",
    "cost_usd": "numeric",
    "latency_ms": "int",
}
TRIAL_COLUMNS = CALL_COLUMNS | {
    "rating": "int",
    "rating_step": "text",
    "parse_error": "text",
    "answer": "text",
    "reasoning": "text",
    "truncated": "bool",
    "refused": "bool",
    "from_cache": "bool",
}
ATTEMPT_COLUMNS = CALL_COLUMNS | {
    "outcome": "text",
    "call": "int",
    "http_status": "int",
    "trace_id": "text",
    "kept_usd": "numeric",
    "list_usd": "numeric",
    "batched": "bool",
    "empty": "bool",
    "truncated": "bool",
    "refused": "bool",
    "unparsed": "bool",
}


def column_expressions(columns: dict[str, str]) -> list[str]:
    """Return the SQL expressions of these columns.

    A missing text becomes empty and a missing boolean becomes false. Only a raw response may be NULL.
    """
    defaults = {"text": "''", "bool": "false"}
    return [
        f"coalesce(r.{name}, {defaults[kind]})" if kind in defaults and name != "raw_response" else f"r.{name}"
        for name, kind in columns.items()
    ]


def column_types(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


INSERT_ATTEMPTS = f"""
INSERT INTO runs_app_attempt (trial_id, run_id, token, worker_id, started_at, finished_at, {", ".join(ATTEMPT_COLUMNS)})
SELECT r.trial, r.run, r.token, r.worker, clock_timestamp() - coalesce(r.latency_ms, 0) * interval '1 millisecond',
    clock_timestamp(), {", ".join(column_expressions(ATTEMPT_COLUMNS))}
FROM json_to_recordset(%s::json) r(trial bigint, run bigint, token uuid, worker bigint, {column_types(ATTEMPT_COLUMNS)})
"""  # noqa: S608 - built from the names above
