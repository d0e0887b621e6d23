"""Commands that write files say where they wrote, and how much."""

import csv
import io
import re

import pytest
from django.core.management import call_command

from grading_app.grading.scoring import grade
from grading_app.publish.export import file_formats
from tests.factories.gradings import make_answered_experiment
from tests.factories.spaces import make_space_experiment
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def experiment():
    created = make_answered_experiment(items=3, models=("a", "b"), samples=2, scorers=["exact_match"])
    grade(created, by="test")
    return created


def run(*words):
    """Return the standard output and the error output of the command."""
    out, err = io.StringIO(), io.StringIO()
    call_command(*map(str, words), stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


@pytest.mark.parametrize("file_format", file_formats.FORMATS)
def test_an_export_reports_its_rows(experiment, tmp_path, monkeypatch, file_format):
    monkeypatch.setattr(file_formats, "PAGE_ROWS", 2)
    path = tmp_path / "trials"
    assert run("export", "pilot", "--format", file_format, "--out", path)[0] == f"Wrote 12 rows to {path}\n"


def test_an_export_reports_the_rows_that_pass_its_filters(experiment, tmp_path):
    path = tmp_path / "trials.csv"
    item = experiment.dataset.items.first().key
    out, _ = run("export", "pilot", "--out", path, "--filter", f"item={item}", "--table", "answers")
    rows = list(csv.DictReader(path.open(newline="")))
    assert out == f"Wrote {len(rows)} rows to {path}\n"
    assert len(rows) == 4
    assert run("export", "pilot", "--out", path, "--filter", "status=failed")[0] == f"Wrote 0 rows to {path}\n"


def test_an_export_reports_the_number_of_records(tmp_path):
    make_space_experiment()
    path = tmp_path / "records.jsonl"
    out, _ = run("export", "space", "--table", "records", "--format", "jsonl", "--out", path)
    assert out == f"Wrote {len(path.read_text().splitlines())} rows to {path}\n"


def test_the_report_of_an_export_to_the_standard_output_is_no_part_of_it(experiment, capfdbinary):
    out, err = run("export", "pilot", "--out", "-")
    assert (out, err) == ("", "Wrote 12 rows\n")
    assert b"Wrote" not in capfdbinary.readouterr().out
    assert run("export", "pilot", "--out", "-", "--verbosity", "0")[1] == ""


@pytest.mark.parametrize(
    ("command", "written"),
    [
        (["bundle", "design", "pilot"], r"[\d,\u202f]+ bytes"),
        (["report", "pilot"], r"\d+ sections \([\d,\u202f]+ bytes\)"),
        (["figures", "pilot", "--format", "json"], r"the summary \([\d,\u202f]+ bytes\)"),
        (["analyse", "pilot", "--table", "descriptives"], "1 table"),
    ],
    ids=["bundle", "report", "figures", "analyse"],
)
def test_a_command_reports_its_file(experiment, tmp_path, command, written):
    path = tmp_path / ("report.html" if command[0] == "report" else "out")
    out, err = run(*command, "--out", path)
    report = err.splitlines()[-1] if command[0] == "bundle" else out.rstrip()  # A bundle's digest is there, too.
    assert re.fullmatch(f"Wrote {written} to {re.escape(str(path))}", report)
