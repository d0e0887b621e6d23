"""Exported tables: CSV, JSON lines and Parquet equal the database row for row."""

import csv
import io
import json
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow.parquet as pa_parquet
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from grading_app.publish.export.columns import Column
from grading_app.publish.export.file_formats import TABLES, ExportError, export_chunks
from grading_app.publish.export.parquet_writer import ParquetStream
from runs_app.models import Trial
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db

TRIAL_COLUMNS = """experiment, condition_id, run_id, wave, wave_label, model, provider, prompt, prompt_hash, sampler,
dataset, dataset_hash, item_key, category, dimension, sample_idx, epoch, status, rating, answer, reasoning,
raw_response, finish_reason, truncated, response_id, served_model, served_provider, input_tokens, output_tokens,
reasoning_tokens, cache_read_tokens, cache_write_tokens, cost_usd, from_cache, latency_ms, attempts, error_class,
error, claimed_at, completed_at, rating_step, parse_error, raw_response_removed_at,
raw_response_sha256""".replace("\n", " ").split(", ")
GRADING_COLUMNS = [
    *TRIAL_COLUMNS[:17],
    "grade_condition_id",
    "scorer",
    "grader",
    "rubric",
    "rubric_hash",
    "score",
    "score_raw",
    "parse_ok",
    "parse_error",
    "grade_reasoning",
    "grade_cost_usd",
    "votes",
]
NASTY = [
    'say "hi"',
    "a,b",
    "line\nfeed",
    "carriage\r\nreturn",
    "back\\slash \\n \\.",
    "\\.",
    "NULL",
    "",
    " ",
    "模型 ✓ \u2028",
    "\x01\x7f",
]


def export_table(experiment, table, file_format, filters=None):
    return b"".join(export_chunks(experiment, table, file_format, filters))


def export_json_rows(experiment, table="trials", filters=None):
    return [json.loads(line) for line in export_table(experiment, table, "jsonl", filters).decode().split("\n") if line]


def export_csv_rows(experiment, table="trials", filters=None):
    return list(csv.DictReader(io.StringIO(export_table(experiment, table, "csv", filters).decode(), newline="")))


def export_parquet_rows(experiment, table="trials"):
    return pa_parquet.read_table(io.BytesIO(export_table(experiment, table, "parquet"))).to_pylist()


@shared_rows
def experiment():
    created = factories.make_experiment(samples=len(NASTY), dataset=factories.make_dataset(items=2))
    for wave in (0, 1):
        (run,) = factories.make_runs(created, wave=wave)
        factories.plan_trials(run, answer=lambda item, dimension, index: NASTY[index])
    return created


def test_the_trials_table_has_the_documented_columns_in_order(experiment):
    assert list(export_csv_rows(experiment)[0]) == TRIAL_COLUMNS
    assert list(export_json_rows(experiment)[0]) == TRIAL_COLUMNS
    assert list(export_parquet_rows(experiment)[0]) == TRIAL_COLUMNS


def test_the_gradings_table_starts_with_the_documented_columns():
    assert [column.name for column in TABLES["gradings"].columns][: len(GRADING_COLUMNS)] == GRADING_COLUMNS


@pytest.mark.parametrize("rows_of", [export_json_rows, export_parquet_rows])
def test_exact_formats_keep_every_character_of_an_answer(experiment, rows_of):
    stored = [
        (trial.run_id, trial.item.key, trial.sample_idx, trial.answer) for trial in Trial.objects.select_related("item")
    ]
    rows = [(row["run_id"], row["item_key"], row["sample_idx"], row["answer"]) for row in rows_of(experiment)]
    assert sorted(rows) == sorted(stored)
    assert {row[3] for row in rows} == set(NASTY)


def test_csv_keeps_texts_that_are_not_formulas(experiment):
    assert [row["answer"] for row in export_csv_rows(experiment)[: len(NASTY)]] == NASTY


def test_each_row_identifies_its_design_cell(experiment):
    row = export_json_rows(experiment)[-1]
    (condition,) = experiment.conditions.all()
    expected = {
        "experiment": "pilot",
        "condition_id": condition.condition_id,
        "wave": 1,
        "wave_label": "wave-1",
        "model": "small",
        "provider": "openai",
        "prompt": "pilot-prompt",
        "prompt_hash": condition.prompt.content_hash,
        "sampler": "pilot-sampler",
        "dataset": "questions@1",
        "dataset_hash": experiment.dataset.content_hash,
        "item_key": "item-1",
        "category": "odd",
        "dimension": None,
        "sample_idx": len(NASTY) - 1,
        "epoch": 2 * len(NASTY),
    }
    assert {name: row[name] for name in expected} == expected


def test_parquet_keeps_types(experiment):
    row = export_parquet_rows(experiment)[0]
    assert row["cost_usd"] == Decimal("0.00012")
    assert row["claimed_at"] == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert row["truncated"] is False
    assert (row["rating"], row["dimension"], row["error"]) == (None, None, "")


def test_unknown_values_are_empty_and_never_zero():
    created = factories.make_experiment(dataset=factories.make_dataset(items=1))
    (run,) = factories.make_runs(created)
    factories.plan_trials(run, answer=lambda *cell: {"cost_usd": None, "latency_ms": None})
    assert (export_csv_rows(created)[0]["cost_usd"], export_json_rows(created)[0]["cost_usd"]) == ("", None)


def test_exporting_in_pages_leaves_no_gap_or_overlap(experiment, monkeypatch):
    whole = export_table(experiment, "trials", "csv")
    monkeypatch.setattr("grading_app.publish.export.file_formats.PAGE_ROWS", 3)
    assert export_table(experiment, "trials", "csv") == whole
    assert len(whole.splitlines()) > 1


def test_query_logging_does_not_break_or_record_an_export(experiment):
    with CaptureQueriesContext(connection) as logged:
        assert len(export_json_rows(experiment)) == Trial.objects.count()
    assert logged.captured_queries
    assert not [query for query in logged.captured_queries if "COPY" in query["sql"]]


def test_filters_select_rows(experiment):
    Trial.objects.bulk_create(
        [
            Trial(
                run=experiment.runs.first(),
                item=experiment.dataset.items.first(),
                sample_idx=99,
                **factories.build_failed_fields(),
            )
        ]
    )
    assert [row["sample_idx"] for row in export_json_rows(experiment, filters={"status": "failed"})] == [99]
    assert len(export_json_rows(experiment, filters={"status": "done", "wave": "wave-1"})) == 2 * len(NASTY)
    condition = experiment.runs.first().condition.condition_id
    assert len(export_json_rows(experiment, filters={"condition": condition})) == len(export_json_rows(experiment))
    with pytest.raises(ExportError, match=f"no condition 'another'; there are {condition}"):
        export_json_rows(experiment, filters={"condition": "another"})


def test_an_experiment_without_trials_exports_only_a_header():
    created = factories.make_experiment()
    assert export_table(created, "trials", "csv").decode() == ",".join(TRIAL_COLUMNS) + "\n"
    assert export_table(created, "trials", "jsonl") == b""
    assert export_parquet_rows(created) == []


def test_an_export_excludes_rows_of_other_experiments(experiment):
    other = factories.make_experiment("other")
    (run,) = factories.make_runs(other)
    factories.plan_trials(run, answer=lambda *cell: "secret")
    assert {row["experiment"] for row in export_json_rows(experiment)} == {"pilot"}
    assert {row["experiment"] for row in export_json_rows(other)} == {"other"}


def test_exported_items_have_norms_and_choices():
    dataset = factories.make_dataset(
        items=[{"key": "a", "input": "Which?", "choices": ["x", "y"], "metadata": {"k": 1}, "norms": {"valence": 3.25}}]
    )
    (row,) = export_json_rows(factories.make_experiment(dataset=dataset), "items")
    assert row["norms"] == {"valence": {"mean": 3.25, "sd": 1.0, "n": 100}}
    assert (row["choices"], row["metadata"], row["item_key"]) == (["x", "y"], {"k": 1}, "a")


def test_the_ledger_equals_the_sum_of_attempts(experiment):
    trials = list(Trial.objects.all())
    for trial in trials:
        factories.make_attempt(trial)
    factories.make_attempt(trials[0], outcome="transient", cost_usd=None, input_tokens=None, output_tokens=None)
    attempts = export_json_rows(experiment, "attempts")
    (ledger,) = export_json_rows(experiment, "ledger")
    assert len(attempts) == len(trials) + 1
    assert (ledger["attempts"], ledger["answered"], ledger["unpriced"]) == (len(trials) + 1, len(trials), 1)
    assert Decimal(str(ledger["cost_usd"])) == sum(Decimal(str(row["cost_usd"] or 0)) for row in attempts)
    assert ledger["input_tokens"] == sum(row["input_tokens"] or 0 for row in attempts)
    assert (ledger["day"], ledger["model"], ledger["stage"]) == ("2026-03-01", "small", "generate")


def test_exported_ratings_have_their_parse_step_and_error():
    experiment = factories.make_experiment(
        samples=2, dataset=factories.make_dataset(items=1), dimensions=[factories.make_dimension()]
    )
    (run,) = factories.make_runs(experiment)
    outcomes = [
        {"answer": '{"rating": 4}', "rating": 4, "rating_step": "json"},
        {"answer": "no idea", "rating": None, "parse_error": "no_rating_found"},
    ]
    factories.plan_trials(run, answer=lambda item, dimension, index: outcomes[index])
    rows = list(csv.DictReader(io.StringIO(b"".join(export_chunks(experiment, "trials", "csv")).decode(), newline="")))
    assert [(row["rating"], row["rating_step"], row["parse_error"]) for row in rows] == [
        ("4", "json", ""),
        ("", "", "no_rating_found"),
    ]


def test_no_thread_of_arrow_holds_a_python_object_after_a_page_was_converted():
    """Such a thread can abort the process while the interpreter shuts down, after the export is complete."""
    stream, held = ParquetStream([Column("answer", "text", "")], row_group_rows=10**6), 0
    for number in range(400):
        page = b"".join(b'"answer %d of page %d"\n' % (row, number) for row in range(20))
        before = sys.getrefcount(page)
        list(stream.add(page))
        held += sys.getrefcount(page) > before
    assert held == 0
