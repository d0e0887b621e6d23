"""A process is killed with -9 while it moves the rows of an experiment to a file, or back: no row is lost."""

import os
import signal
import subprocess
import sys

import pytest

from grading_app.grading.consistency_check import find_differences
from grading_app.models import RatedAnswer, Rating, StoredRows
from grading_app.study_import.stored_rows import bring_back, store_rows
from runs_app.models import Experiment, Trial
from tests.integration.export.test_stored_experiments import make_archived, read_ledger, read_rows
from tests.system.processes.workers import ROOT, get_data_dir, get_database_url, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]
# The process waits in the function, and the file says that it is there.
HANG = """
import time
from pathlib import Path
from grading_app.study_import import stored_rows
from runs_app.models import Experiment
def wait(*arguments, **options):
    Path({marker!r}).touch()
    time.sleep(600)
stored_rows.{function} = wait
stored_rows.{action}(Experiment.objects.get(slug="old"), by="test", reason="a crash")
"""
# In the order of the work: the file is written; rows are deleted or inserted; everything is done but the commit.
STORE = ("_sync_folder", "_compare_with_file", "read_counters", "_refuse_new_differences")
BRING_BACK = ("load_lines", "insert_part", "_compare_with_file", "_refuse_new_differences")


def kill_in(function, action, marker):
    code = HANG.format(function=function, action=action, marker=str(marker))
    process = subprocess.Popen(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", code],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": get_database_url(), "EVALSITE_DATA_DIR": get_data_dir()},
        start_new_session=True,
    )
    try:
        wait_until(marker.exists)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("function", STORE)
def test_a_crash_while_rows_move_to_the_file_changes_nothing(function, tmp_path):
    archived = make_archived()
    before, ledger = read_rows(), read_ledger()
    kill_in(function, "store_rows", tmp_path / "here")
    archived = Experiment.objects.get(slug="old")
    assert (archived.status, StoredRows.objects.count()) == ("archived", 0)
    assert (read_rows(), read_ledger()) == (before, ledger)
    store_rows(archived, by="test")
    bring_back(archived, by="test")
    assert (read_rows(), read_ledger()) == (before, ledger)


@pytest.mark.parametrize("function", BRING_BACK)
def test_a_crash_while_rows_come_back_leaves_them_in_the_file(function, tmp_path):
    archived = make_archived()
    before, ledger, problems = read_rows(), read_ledger(), find_differences()
    store_rows(archived, by="test")
    kill_in(function, "bring_back", tmp_path / "here")
    archived = Experiment.objects.get(slug="old")
    counts = [model.objects.count() for model in (Trial, RatedAnswer, Rating)]
    assert (archived.status, counts) == ("stored", [0, 0, 0])
    assert find_differences() == problems
    bring_back(archived, by="test")
    assert (read_rows(), read_ledger(), find_differences()) == (before, ledger, problems)
