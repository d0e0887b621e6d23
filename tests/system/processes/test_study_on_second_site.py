"""A study imported into another site from its snapshot has the same content, numbers and pages there."""

import csv
import difflib
import io
import json
import re
import shutil

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from evalsite.lib.ops.postgres import Embedded
from grading_app.grading.consistency_check import find_differences
from grading_app.grading.judging import panels
from grading_app.models import CachedAggregate
from grading_app.publish.export.study_rows import TABLES
from grading_app.publish.report import report_source
from grading_app.publish.report.build import build_document
from grading_app.publish.report.document import Paragraph, TableBlock
from grading_app.tasks import compute_aggregates
from runs_app.models import Experiment
from tests import factories
from tests.factories.studies import make_whole_study
from tests.page_text import page_text
from tests.system.faults.conftest import use_database_of
from tests.system.postgres.conftest import open_folder

EMPTY = {"Norm", "ParametricSpace", "Dimension", "Experiment_dimensions", "RatingQueue_dimensions",
         "RatingQueue_conditions", "ExternalCall"}  # fmt: skip
"""Tables without rows in this study. The snapshots of tests/integration/study_import and api cover these tables."""
TIMES = r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?"
OWN_TABLES = {"launches", "snapshots", "software"}
"""Tables of the report that differ between sites."""


def run_command(*arguments):
    output = io.StringIO()
    call_command(*map(str, arguments), stdout=output, stderr=io.StringIO())
    return output.getvalue()


def read_output_file(folder, name, *arguments):
    """Return the content of the file that a command writes."""
    run_command(name, *arguments, "--out", folder / "written")
    return (folder / "written").read_text()


def read_points(experiment, folder):
    """Return the exported table of points, without the keys of this site's runs."""
    rows = csv.DictReader(io.StringIO(read_output_file(folder, "export", experiment.slug, "--table", "points")))
    return [{name: value for name, value in row.items() if name != "run_id"} for row in rows]


def read_report(experiment):
    """Return the sentences and tables of the report, without the parts that name the site or its keys."""
    document = build_document(experiment)
    assert not document.failed
    spans = [span.text for block in document.list_blocks(Paragraph) for span in block.spans]
    sentences = [text for text in spans if not text.startswith("The answers were imported from")]
    tables = [block.content for block in document.list_blocks(TableBlock) if block.table.name not in OWN_TABLES]
    return json.loads(re.sub(r"\b(g|people)\d+", r"\1", json.dumps([sentences, tables])))


def read_page(client, name, experiment):
    """Return the text of a page after a worker computed its numbers."""
    address = reverse(name, args=[experiment.slug])
    page = client.get(address)
    while CachedAggregate.objects.exclude(step="").exists():
        compute_aggregates(list(CachedAggregate.objects.values_list("pk", flat=True)))
        page = client.get(address)
    assert page.status_code == 200
    text = re.sub(r"<(script|style|svg).*?</\1>|<[^>]+>", " ", page_text(page).partition("<main")[2])
    return " ".join(re.sub(rf"{TIMES}|Run -?\d+|A run|[0-9a-f]{{16}}|zip, [0-9.]+\sKB", "", text).split())


def diff_words(left, right):
    lines = difflib.unified_diff(left.split(), right.split(), lineterm="", n=8)
    return " ".join(lines)[:2000]


def collect_facts(experiment, folder):
    """Return the facts that must be equal on both sites."""
    client = Client()
    client.force_login(experiment.owner)
    run_command("snapshot", experiment.slug, "--out", folder / "made.zip")
    verified = run_command("verify_snapshot", folder / "made.zip")
    return {
        "content": re.search(r"(\w{64})  content", verified).group(1),
        "report": read_report(experiment),
        "analysis": read_output_file(folder, "analyse", experiment.slug, "--format", "json"),
        "points": read_points(experiment, folder),
        "results": read_page(client, "experiment_results", experiment),
        "grading": read_page(client, "experiment_grading", experiment),
        "agreement": read_page(client, "experiment_agreement", experiment),
        "points page": read_page(client, "experiment_points", experiment),
        "ledger": read_page(client, "experiment_ledger", experiment),
    }


@pytest.fixture
def second_server():
    with open_folder() as folder:
        embedded = Embedded(folder / "postgres")
        embedded.start()
        yield embedded


def test_a_second_database_has_the_same_content_numbers_and_pages(
    transactional_db, second_server, settings, tmp_path, monkeypatch
):
    monkeypatch.setattr(report_source, "draw_picture", lambda figure, width: ("<svg></svg>", (560, 100)))
    study = make_whole_study()
    assert {table.model.__name__ for table in TABLES if not table.model._default_manager.exists()} == EMPTY
    assert find_differences() == []
    original = collect_facts(study, tmp_path)
    shutil.move(tmp_path / "made.zip", tmp_path / "sent.zip")
    settings.MEDIA_ROOT = tmp_path / "second" / "media"
    with use_database_of(second_server):
        run_command("migrate", "-v0")
        factories.make_user("importer", superuser=True)
        output = run_command("import_snapshot", tmp_path / "sent.zip")
        assert f"whole: imported, content {original['content']}" in output
        assert find_differences() == []
        assert panels.refresh_all_panels(Experiment.objects.get()) == 0, (
            "members of panels are conditions of another study"
        )
        imported = collect_facts(Experiment.objects.get(), tmp_path)
    for name in original:
        assert imported[name] == original[name], (name, diff_words(str(imported[name]), str(original[name])))
