"""The columns of exported tables: their SQL in each format, a trial's place in the design, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evalsite.lib.text.spreadsheet import escape_cell_sql

Kind = Literal["text", "integer", "decimal", "real", "flag", "time", "json"]

UTC_TEXT = 'YYYY-MM-DD"T"HH24:MI:SS.US'
MAX_ARGUMENTS = 100  # The limit of PostgreSQL for the arguments of a function.


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind
    sql: str


def columns(kind: Kind, source: str, names: str) -> tuple[Column, ...]:
    """Return columns of one kind that have the same names as in their table."""
    return tuple(Column(name, kind, f"{source}.{name}") for name in names.split())


def exact_cell(column: Column) -> str:
    if column.kind == "time":
        return f"to_char({column.sql} AT TIME ZONE 'UTC', '{UTC_TEXT}')"
    return f"({column.sql})::text" if column.kind in ("flag", "json") else column.sql


def spreadsheet_cell(column: Column) -> str:
    if column.kind == "time":
        return f"to_char({column.sql} AT TIME ZONE 'UTC', '{UTC_TEXT}\"Z\"')"
    cell = exact_cell(column)
    if column.kind not in ("text", "json"):
        return cell
    return escape_cell_sql(cell)


def json_members(members: Sequence[Column]) -> str:
    """Return SQL for a JSON object without its braces.

    It is faster than row_to_json. That function first makes a row of the cells, and looks up the type of each cell.
    """
    pieces = [piece for column in members for piece in (f"""',"{column.name}":'""", _build_json_value(column))]
    pieces[0] = pieces[0].replace(",", "", 1)
    parts = (pieces[start : start + MAX_ARGUMENTS] for start in range(0, len(pieces), MAX_ARGUMENTS))
    return " || ".join(f"concat({', '.join(part)})" for part in parts)


def _build_json_value(column: Column) -> str:
    """Return SQL for the JSON value of a column.

    Integers, booleans and JSON are written as their text. Other kinds go through to_json, which quotes where needed
    (also for NaN).
    """
    if column.kind in ("integer", "flag", "json"):
        return f"coalesce(({column.sql})::text, 'null')"
    return f"coalesce(to_json({spreadsheet_cell(column) if column.kind == 'time' else column.sql}), 'null')"


SHARED_BY_A_RUN = (
    *columns("text", "cell", "experiment condition_id"),
    *columns("integer", "cell", "run_id wave"),
    *columns("text", "cell", "wave_label model provider prompt prompt_hash sampler dataset dataset_hash"),
)
DESIGN_CELL = (
    *SHARED_BY_A_RUN,
    Column("item_key", "text", "i.key"),
    Column("category", "text", "i.category"),
    Column("dimension", "text", "dim.name"),
    Column("sample_idx", "integer", "t.sample_idx"),
    Column("epoch", "integer", "cell.epoch_offset + t.sample_idx + 1"),
)
ITS_ITEM = ("item_key", "category", "sample_idx", "epoch")  # Columns of a trial's item. A point has many items.
# The values that all rows of a run share, computed once per page and not once per row. OFFSET 0 keeps the subquery
# separate. `members`, their JSON, is not computed unless it is selected.
CELLS = f"""(SELECT cell.*, {json_members(SHARED_BY_A_RUN)} AS members FROM (
    SELECT r.id AS run_id, e.slug AS experiment, c.condition_id, c.stage, w.number AS wave, w.label AS wave_label,
        w.epoch_offset, m.name AS model, nullif(n.provider, '') AS provider, p.name AS prompt,
        p.content_hash AS prompt_hash, s.name AS sampler, d.slug || '@' || d.version AS dataset,
        d.content_hash AS dataset_hash
    FROM runs_app_run r
    JOIN runs_app_experiment e ON e.id = r.experiment_id
    JOIN datasets_app_dataset d ON d.id = e.dataset_id
    JOIN runs_app_wave w ON w.id = r.wave_id
    JOIN runs_app_condition c ON c.id = r.condition_id
    JOIN runs_app_languagemodel m ON m.id = c.model_id
    JOIN runs_app_endpoint n ON n.id = m.endpoint_id
    LEFT JOIN runs_app_prompt p ON p.id = c.prompt_id
    JOIN runs_app_sampler s ON s.id = c.sampler_id
    WHERE r.experiment_id = %(experiment)s) cell OFFSET 0) cell"""  # noqa: S608
DESIGN_JOINS = f"""
    JOIN {CELLS} ON cell.run_id = t.run_id
    LEFT JOIN datasets_app_item i ON i.id = t.item_id
    LEFT JOIN runs_app_dimension dim ON dim.id = t.dimension_id
"""


DESIGN = {
    "experiment": "Name of the experiment",
    "condition_id": "Condition: a name, and a hash of the content of model, prompt and sampler",
    "run_id": "Run: one condition in one wave",
    "wave": "Number of the wave, from 0",
    "wave_label": "Label of the wave",
    "model": "Name of the language model",
    "provider": "Provider whose API was called",
    "prompt": "Name of the prompt",
    "prompt_hash": "Hash of the template of the prompt",
    "sampler": "Name of the sampling parameters",
    "dataset": "Name and version of the dataset",
    "dataset_hash": "Hash of the items at approval",
    "item_key": "Key of the item",
    "category": "Category of the item",
    "dimension": "Dimension that was rated; empty if items are not rated",
    "sample_idx": "Repetition within the wave, from 0",
    "epoch": "Repetition over all waves, from 1",
}
TRIALS = {
    "status": "pending, running, done, failed or cancelled",
    "rating": "Whole number read from the answer",
    "answer": "Text of the answer, without the model's thinking",
    "reasoning": "Thinking of the model, or reasoning of a rating",
    "raw_response": "Text of the answer as received",
    "finish_reason": "Why the answer ended, as the provider states",
    "truncated": "Whether the answer reached its token limit",
    "response_id": "Identifier of the response, as the provider states",
    "served_model": "Model that answered, as the provider states",
    "served_provider": "Provider that served the call, as stated",
    "input_tokens": "Tokens of the request, with cached tokens",
    "output_tokens": "Tokens of the answer, with reasoning tokens",
    "reasoning_tokens": "Reasoning tokens, a part of the output tokens",
    "cache_read_tokens": "Tokens read from the provider's cache, a part of the input tokens",
    "cache_write_tokens": "Tokens written into the provider's cache, a part of the input tokens",
    "cost_usd": "Cost of the stored answer in US dollars; empty if unknown",
    "from_cache": "Whether the site's response cache answered, without a call",
    "latency_ms": "Latency of the stored answer in milliseconds",
    "attempts": "Number of attempts that count",
    "error_class": "Class of the last failure",
    "error": "Message of the last failure, without keys",
    "claimed_at": "Time of the last claim, UTC",
    "completed_at": "Time of the result, UTC",
    "rating_step": "How the rating was read: json, braces or digit",
    "parse_error": "Why no rating could be read; empty if it was read, or none was requested",
    "raw_response_removed_at": "When the site's retention rule removed the raw response, UTC",
    "raw_response_sha256": "SHA-256 of a removed raw response",
}
GRADINGS = {
    "grade_condition_id": "Scorer and parameters, judge and rubric, panel, or person and rubric, by content",
    "scorer": "Name of the rule",
    "grader": "Name of the judge or panel; for a person, the queue and a number",
    "rubric": "Name of the rubric",
    "rubric_hash": "Hash of the rubric",
    "score": "Score; empty if it could not be read",
    "score_raw": "Value as read from the answer or the verdict",
    "parse_ok": "Whether a score could be read",
    "parse_error": "Why no score could be read",
    "grade_reasoning": "Reasoning of the judge, or reason of an adjudication",
    "grade_cost_usd": "Cost of the judge's reply in US dollars; 0 without a call",
    "votes": "Members of a panel with a score",
    "trial_id": "Trial with the answer",
    "kind": "rule, judge, panel, person or adjudicated",
    "parameters": "Parameters of the scorer, the panel or the scale",
    "rubric_version": "Version of the rubric",
    "item_texts": "Set of item texts that the judge read",
    "judge_model": "Model of the judge",
    "judge_endpoint": "Endpoint of the judge",
    "judge_sampler": "Sampling parameters of the judge",
    "judge_served_model": "Model that judged, as the provider states",
    "judge_trial_id": "Trial of the judge; empty without a call",
    "unasked": "Why a score was given without a call: empty_answer or answer_too_long",
    "label": "Label that the judge chose",
    "truncated": "Whether the answer was truncated",
    "refused": "Whether the answer was refused",
    "detail": "Criteria, label, code and flags of the score",
    "adjudicated_by": "Author of an adjudication",
    "graded_at": "Time of the grade, UTC",
}
ITEMS = {
    "experiment": "Name of the experiment",
    "dataset": "Name and version of the dataset",
    "dataset_hash": "Hash of the items at approval",
    "item_key": "Key of the item",
    "position": "Position in the dataset",
    "category": "Category of the item",
    "input": "Text of the item",
    "image": "SHA-256 of the image of the item",
    "target": "Expected answer",
    "choices": "Choices of the item, as a JSON list",
    "grading_scheme": "How the answer is graded",
    "metadata": "Further fields of the item, as JSON",
    "norms": "Human norms by dimension: mean, standard deviation, number of ratings",
    "excluded": "Whether the item is excluded",
    "note": "Why the item is excluded",
}
CODEBOOK: dict[str, dict[str, str]] = {
    "items": ITEMS,
    "trials": {**DESIGN, **TRIALS},
    "gradings": {**DESIGN, **GRADINGS},
}
