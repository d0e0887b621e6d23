"""Escaping of CSV cells: a spreadsheet never runs a formula from a model's reply."""

import csv
import io
import json
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from evalsite.lib.text.spreadsheet import escape_cell, escape_cell_sql, format_csv_line
from grading_app.publish.export.file_formats import export_chunks
from tests import factories

pytestmark = pytest.mark.django_db

BOMBS = [
    "=1+1",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    '=HYPERLINK("http://x","y")',
    "-",
    "--5",
    "-5 apples",
    "+1\n=2",
    "\n=1",
    "\n plain words after a line feed",
    "\r\n=1",
    ";=1",
    ";;\t=1",
    ",=1",
    "|=1",
    " =1",
    "\u00a0=1",
    "\u3000=1",
    "\u200b=1",
    "\ufeff=1",
    "\u202e=1",
    "\x1b=1",
    "\x85=1",
    "＝1+1",
    "＋1",
    "－2+3",
    "＠SUM(A1)",
    "﹦1",
    "\u200b＝1",
    "; @SUM(A1)",
    "-5\n",
]
HARMLESS = ["-5", "+3", "-0.25", "5-4", "a=b", "", "'=1", " spaced", "; and", "\u200bword", "１＝１", "(=1)", "مرحبا"]


def export_answers(file_format, texts):
    experiment = factories.make_experiment(samples=len(texts), dataset=factories.make_dataset(items=1))
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run, answer=lambda item, dimension, index: texts[index])
    text = b"".join(export_chunks(experiment, "trials", file_format)).decode()
    if file_format == "jsonl":
        return [json.loads(line)["answer"] for line in text.split("\n") if line]
    return [row["answer"] for row in csv.DictReader(io.StringIO(text, newline=""))]


def test_a_formula_gets_an_apostrophe():
    assert export_answers("csv", BOMBS) == [f"'{bomb}" for bomb in BOMBS]


def test_numbers_and_plain_text_are_not_escaped():
    assert export_answers("csv", HARMLESS) == HARMLESS


def test_json_lines_are_not_escaped():
    assert export_answers("jsonl", BOMBS) == BOMBS


def test_names_and_errors_are_also_escaped():
    item = {"key": "=key", "category": "@category"}
    experiment = factories.make_experiment(dataset=factories.make_dataset(items=[item]))
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run, answer=lambda *cell: factories.build_failed_fields(error="=cmd|' /C calc'!A0"))
    text = b"".join(export_chunks(experiment, "trials", "csv")).decode()
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert (row["item_key"], row["category"], row["error"]) == ("'=key", "'@category", "'=cmd|' /C calc'!A0")


def test_sql_and_python_escape_cells_identically():
    """Compare both forms of the rule: SQL for exports, Python for the ratings of one queue."""
    texts = [*BOMBS, *HARMLESS, *(chr(code) + tail for code in range(1, 0x3000) for tail in ("=1", "a"))]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {escape_cell_sql('cell')} FROM unnest(%s::text[]) WITH ORDINALITY AS t(cell, n) ORDER BY n",
            [texts],
        )
        by_the_database = [cell for (cell,) in cursor.fetchall()]
    assert by_the_database == [escape_cell(text) for text in texts]


def test_only_one_module_writes_or_escapes_csv_cells():
    root = Path(settings.BASE_DIR)
    files = [
        path for app in ("evalsite", "datasets_app", "runs_app", "grading_app") for path in (root / app).rglob("*.py")
    ]
    writers = {path.name for path in files if "csv.writer(" in (text := path.read_text()) or "DictWriter(" in text}
    copies = {path.name for path in files if "FORMAT csv" in path.read_text()}
    assert writers == {"spreadsheet.py"}
    assert copies == {"file_formats.py"}
    for path in files:
        if (path.parent.name, path.name) in {("rating", "queue_results.py"), ("export", "columns.py")}:
            assert "from evalsite.lib.text.spreadsheet import" in path.read_text(), path


def test_csv_lines_of_rating_queues_are_escaped():
    line = format_csv_line(["＝1", "\n=1", ";=1", "-5", -5, ""])
    assert next(csv.reader(io.StringIO(line, newline=""))) == ["'＝1", "'\n=1", "';=1", "-5", "-5", ""]
