"""What a model said is never run by the spreadsheet that opens it."""

import csv
import io
import json

import pytest

from grading_app.exporting import export_chunks
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
]
HARMLESS = ["-5", "+3", "-0.25", "5-4", "a=b", " =1", "", "'=1"]


def answers(file_format, texts):
    experiment = factories.make_experiment(samples=len(texts), dataset=factories.make_dataset(items=1))
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run, answer=lambda item, dimension, index: texts[index])
    text = b"".join(export_chunks(experiment, "trials", file_format)).decode()
    if file_format == "jsonl":
        return [json.loads(line)["answer"] for line in text.split("\n") if line]
    return [row["answer"] for row in csv.DictReader(io.StringIO(text, newline=""))]


def test_a_formula_gets_an_apostrophe():
    assert answers("csv", BOMBS) == [f"'{bomb}" for bomb in BOMBS]


def test_numbers_and_plain_text_stay_as_they_are():
    assert answers("csv", HARMLESS) == HARMLESS


def test_json_lines_stay_exact():
    assert answers("jsonl", BOMBS) == BOMBS


def test_names_and_errors_are_defused_too():
    item = {"key": "=key", "category": "@category"}
    experiment = factories.make_experiment(dataset=factories.make_dataset(items=[item]))
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run, answer=lambda *cell: factories.failed(error="=cmd|' /C calc'!A0"))
    text = b"".join(export_chunks(experiment, "trials", "csv")).decode()
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert (row["item_key"], row["category"], row["error"]) == ("'=key", "'@category", "'=cmd|' /C calc'!A0")
