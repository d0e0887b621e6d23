"""A worker that performs a job for a page and is killed with -9: the page learns it, and a second try succeeds."""

import os
import signal
import subprocess
import sys

import pytest
from django.core.files.base import ContentFile
from django.utils.module_loading import import_string

from datasets_app.models import BackgroundJob
from datasets_app.models.background_jobs import WORKER_STOPPED
from datasets_app.pending_uploads import stage_upload
from grading_app.models import Snapshot, StoredRows
from grading_app.study_import.import_jobs import CHECK
from grading_app.study_import.import_jobs import TASK as STUDY_TASK
from grading_app.study_import.stored_rows import request_move, store_rows
from grading_app.views.files import SNAPSHOT_TASK
from runs_app.tasks import maintain
from runs_app.views.parametric import SAMPLE
from tests import factories
from tests.integration.export.test_stored_experiments import make_archived
from tests.system.processes.workers import ROOT, get_data_dir, get_database_url, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]
# The worker waits in the function with the second name, after it has started the job.
HANG = """
import time
from importlib import import_module
from django.utils.module_loading import import_string
module, _, name = "{function}".rpartition(".")
setattr(import_module(module), name, lambda *arguments, **options: time.sleep(600))
import_string("{task}")({key})
"""
TRIALS = (
    "model,run_id,image_id,dimension,sample_idx,status,rating,attempts,finish_reason,cost_usd,error,raw_response\n"
    "small,one,Cat 1,valence,0,done,6,1,stop,0.001,,six\n"
)


@pytest.fixture
def queued(monkeypatch):
    """The tasks that pages enqueue. The test runs them."""
    tasks = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *args, **options: tasks.append((name, *args)))
    return tasks


def stage(part, name, text, **more):
    user = factories.make_user("reader", "Researcher")
    return stage_upload(user, {part: ContentFile(text.encode(), name=name)}, slug="kept", about={}, **more)


def request_columns():
    stage("items", "items.csv", "id,question\nq1,One?\n").request_job("columns")


def request_import():
    stage("items", "items.csv", "id,question\nq1,One?\n").request_job("import", {})


def request_space():
    upload = stage("items", "space.yaml", SAMPLE)
    upload.describe("kept", {"title": ""}).request_job("parametric", {})


def request_study():
    stage("study-1", "trials.csv", TRIALS, task=STUDY_TASK).request_job(CHECK, {"slug": "kept"})


def request_snapshot():
    experiment = factories.make_experiment(dataset=factories.make_dataset(items=1))
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(run, answer=lambda item, *_: item.target)
    BackgroundJob.objects.request(
        Snapshot.get_job_subject(experiment),
        "snapshot",
        task=SNAPSHOT_TASK,
        timeout_s=60,
        by=experiment.owner,
        parameters={"label": "", "reason": "", "experiment": experiment.pk},
    )


def request_storing():
    request_move(make_archived(), StoredRows.STORE, by="a test", reason="space")


def request_bringing_back():
    experiment = make_archived()
    store_rows(experiment, by="a test", reason="space")
    request_move(experiment, StoredRows.BRING_BACK, by="a test", reason="a question")


JOBS = [
    pytest.param(request_columns, "datasets_app.upload_jobs.read_table_columns", id="columns"),
    pytest.param(request_import, "datasets_app.upload_jobs.save_reading", id="import"),
    pytest.param(request_space, "datasets_app.upload_jobs.create_parametric_dataset", id="space"),
    pytest.param(request_study, "grading_app.study_import.import_jobs.read_study_upload", id="study"),
    pytest.param(request_snapshot, "grading_app.tasks.make_snapshot", id="snapshot"),
    pytest.param(request_storing, "grading_app.study_import.stored_rows.delete_trials", id="store"),
    pytest.param(request_bringing_back, "grading_app.study_import.stored_rows.insert_part", id="bring-back"),
]


def kill_worker_in(function, task, key):
    """Perform the job in its own process, and kill it in this function."""
    code = HANG.format(function=function, task=task, key=key)
    process = subprocess.Popen(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", code],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": get_database_url(), "EVALSITE_DATA_DIR": get_data_dir()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: BackgroundJob.objects.get().started_at)
        assert not BackgroundJob.objects.get().is_lost
        assert BackgroundJob.objects.sweep() == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(("request_job", "function"), JOBS)
def test_the_sweep_ends_its_job_and_a_second_try_succeeds(request_job, function, queued):
    request_job()
    ((task, key),) = queued
    kill_worker_in(function, task, key)
    wait_until(lambda: BackgroundJob.objects.get().is_lost)
    maintain()
    lost = BackgroundJob.objects.get()
    assert (lost.state, lost.problem) == ("failed", WORKER_STOPPED)
    lost.retry()
    assert queued == [(task, key)] * 2
    import_string(task)(key)
    done = BackgroundJob.objects.get()
    assert (done.state, done.problem) == ("done", "")
    import_string(task)(key)  # The killed worker's task, delivered again.
    assert BackgroundJob.objects.get().ended_at == done.ended_at


@pytest.mark.parametrize(("request_job", "function"), JOBS[:1])
def test_a_task_that_is_delivered_again_replaces_the_killed_worker(request_job, function, queued):
    request_job()
    ((task, key),) = queued
    kill_worker_in(function, task, key)
    wait_until(lambda: BackgroundJob.objects.get().is_lost)
    import_string(task)(key)
    assert BackgroundJob.objects.get().state == "done"
