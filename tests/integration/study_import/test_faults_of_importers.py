"""A fault of the importing program is not reported as a bad file: it is raised, with its trace, for the log."""

from pathlib import Path

import pytest
from django.urls import reverse

from datasets_app.importing.limited_reader import FileToRead, ReaderFault, run_reader
from datasets_app.importing.records import ScratchFolder
from datasets_app.models import BackgroundJob, Dataset
from datasets_app.upload_jobs import FAILED
from evalsite.lib import permissions
from grading_app.publish.export import snapshot_check
from grading_app.publish.export.snapshot_check import SCHEMA, verify
from grading_app.study_import import import_jobs, snapshot_import, writer
from grading_app.study_import.formats import promptfoo
from grading_app.study_import.importers import read_source
from runs_app.models import Experiment
from tests import factories
from tests.factories.files import build_upload
from tests.factories.imports import import_snapshot, write_study
from tests.page_text import page_text

HERE = Path(__file__).parent
RESULTS, CONFIG = HERE / "promptfoo" / "results.json", HERE / "promptfoo" / "promptfooconfig.yaml"
SNAPSHOT = HERE / "snapshots" / f"schema-{SCHEMA}.zip"


class Fault(TypeError):
    """The error of a function that is called with another type."""


def fail(*args, **kwargs):
    raise Fault("unsupported operand")


@pytest.mark.parametrize(("path", "function"), [(RESULTS, "_build_item"), (CONFIG, "_list_models")])
def test_a_fault_of_a_format_is_raised(monkeypatch, path, function):
    monkeypatch.setattr(promptfoo, function, fail)
    with pytest.raises(Fault):
        read_source(path)


def test_a_fault_of_the_check_of_a_snapshot_is_raised(monkeypatch):
    monkeypatch.setattr(snapshot_check, "StudyCard", fail)
    with pytest.raises(Fault):
        verify(SNAPSHOT)


@pytest.mark.django_db
def test_a_fault_while_rows_are_written_is_raised_and_changes_nothing(monkeypatch, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"
    owner = factories.make_user("importer", permissions.RESEARCHER)
    monkeypatch.setattr(snapshot_import, "complete_study", fail)
    with pytest.raises(Fault):
        import_snapshot(SNAPSHOT, owner)
    monkeypatch.setattr(writer, "recount", fail)
    with pytest.raises(Fault):
        write_study(read_source(RESULTS), "capitals", owner)
    assert not Experiment.objects.exists()
    assert not Dataset.objects.exists()


def test_a_fault_in_the_reading_process_is_raised_with_its_trace():
    files = {"study": FileToRead(RESULTS, "results.json")}
    with pytest.raises(ReaderFault, match=r"Traceback[\s\S]*TypeError: loads\(\) takes"):
        run_reader(ScratchFolder(), "json:loads", files)  # It takes one argument, not three.


@pytest.mark.django_db
def test_the_page_of_an_import_reports_a_fault_of_the_worker(monkeypatch, client, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"
    monkeypatch.setattr("django_q.tasks.async_task", lambda *args, **kwargs: None)
    client.force_login(factories.make_user("researcher", permissions.RESEARCHER))
    upload = build_upload(RESULTS.read_bytes(), "results.json")
    address = client.post(reverse("study_import_new"), {"study": [upload], "upload": ""}).url
    monkeypatch.setattr(import_jobs, "read_study_upload", fail)
    with pytest.raises(Fault):
        import_jobs.run_import(BackgroundJob.objects.get().pk)
    page = page_text(client.get(address))
    assert FAILED in page
    assert "cannot be imported" not in page
    assert "unsupported operand" not in page
