"""Exports over HTTP: streamed, filtered by the URL, with a file name."""

import csv
import io
import json

import pyarrow.parquet as pa_parquet
import pytest
from django.core.management import load_command_class
from django.urls import reverse

from grading_app.publish.export.command_process import CommandProcessError
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def experiment(client):
    created = factories.make_experiment(samples=2)
    (run,) = factories.make_runs(created)
    factories.plan_trials(run, answer=lambda item, _, index: factories.build_failed_fields("server") if index else "=4")
    client.force_login(created.owner)
    return created


def download(client, table="trials", file_format="csv", **query):
    return client.get(reverse("experiment_export", args=["pilot", table, file_format]), query)


def read_rows(answer):
    return list(csv.DictReader(io.StringIO(answer.getvalue().decode(), newline="")))


@pytest.mark.slow
def test_csv_is_streamed_with_a_file_name(client, experiment):
    answer = download(client)
    assert answer.streaming
    assert answer["Content-Disposition"] == 'attachment; filename="pilot-trials.csv"'
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert len(read_rows(answer)) == 6


def test_json_lines_are_streamed(client, experiment):
    lines = download(client, file_format="jsonl").getvalue().splitlines()
    assert {json.loads(line)["experiment"] for line in lines} == {"pilot"}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_parquet_is_written_by_a_separate_process(client, experiment):
    whole = download(client, file_format="parquet", status="failed").getvalue()
    assert [row["error_class"] for row in pa_parquet.read_table(io.BytesIO(whole)).to_pylist()] == ["server"] * 3
    assert pa_parquet.read_table(io.BytesIO(download(client, file_format="parquet").getvalue())).num_rows == 6


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_failed_process_aborts_the_response_instead_of_truncating_the_file(client, experiment, monkeypatch):
    monkeypatch.setattr(
        "grading_app.publish.export.command_process._build_environment", lambda: {"EVALSITE_UNHEARD_OF": "1"}
    )
    with pytest.raises(CommandProcessError):
        download(client, file_format="parquet").getvalue()


def test_exports_accept_the_filters_of_the_trial_list(client, experiment):
    condition, item = experiment.conditions.get(), experiment.dataset.items.first()
    assert len(read_rows(download(client, status="failed"))) == 3
    assert len(read_rows(download(client, error="server", item=item.key))) == 1
    assert (
        len(read_rows(download(client, condition=condition.pk, run=experiment.runs.get().pk, experiment="pilot"))) == 6
    )
    assert len(read_rows(download(client, condition=condition.condition_id, category="odd"))) == 2
    assert len(read_rows(download(client, contains="=4", truncated="false", refused="false", from_cache="false"))) == 3
    assert len(read_rows(download(client, wave="wave 0"))) == 6
    refused = download(client, wave="spring")
    assert refused.status_code == 400
    assert refused.content.decode() == 'there is no wave spring; existing waves: 0 "first wave"'


@pytest.mark.parametrize(
    ("table", "file_format", "query"),
    [("colours", "csv", {}), ("trials", "xlsx", {}), ("trials", "csv", {"colour": "red"})],
)
def test_unknown_tables_formats_and_filters_are_refused_with_a_message(client, experiment, table, file_format, query):
    answer = download(client, table, file_format, **query)
    assert answer.status_code == 400
    assert "there is no" in answer.content.decode() or "no filter" in answer.content.decode()


def test_the_command_of_a_parquet_export_parses_with_and_without_filters(client, experiment, monkeypatch):
    commands = []
    monkeypatch.setattr(
        "grading_app.publish.export.command_process.stream_command", lambda arguments: commands.append(arguments) or []
    )
    download(client, file_format="parquet")
    download(client, file_format="parquet", status="failed", error="server")
    for (_, *arguments), filters in zip(commands, ([], ["status=failed", "error=server"]), strict=True):
        parser = load_command_class("grading_app", "export").create_parser("manage.py", "export")
        options = parser.parse_args(arguments)
        assert (options.experiment, options.table, options.format, options.out) == ("pilot", "trials", "parquet", "-")
        assert options.filter == filters
