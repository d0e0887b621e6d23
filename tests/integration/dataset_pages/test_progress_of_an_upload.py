"""Progress of an upload that a worker reads: the page also says what to do without a worker. No file is lost."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone
from django.utils.module_loading import import_string

from datasets_app import pending_uploads, tasks, upload_jobs
from datasets_app.importing import LIMITS, limited_reader
from datasets_app.models import BackgroundJob, Dataset
from evalsite.lib.text.number_format import format_count
from runs_app.taskqueue.task_payloads import FUNCTIONS
from tests.factories.files import stop_processes
from tests.integration.dataset_pages.test_uploading import build_choices, post_and_work, send


@pytest.fixture
def queued_tasks(monkeypatch):
    """Return a list of queued tasks, which the test runs later."""
    queued = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda function, *args, **how: queued.append((function, args)))
    return queued


@pytest.fixture
def member(as_):
    return as_("researcher")


def run_queued_tasks(queued_tasks):
    while queued_tasks:
        function, args = queued_tasks.pop(0)
        import_string(function)(*args)


def find_pending_upload(address, people):
    return pending_uploads.find_upload(people["researcher"].pk, address.split("/")[-2])


def read_page(client, address):
    return client.get(address).content.decode()


def test_the_task_is_on_the_list_of_allowed_tasks():
    assert pending_uploads.READ_UPLOAD in FUNCTIONS
    assert import_string(pending_uploads.READ_UPLOAD) is tasks.read_upload


def test_the_web_server_reads_nothing_of_an_upload(member, queued_tasks, monkeypatch):
    monkeypatch.setattr(limited_reader, "_run_task", None)
    address = send(member).url
    text = read_page(member, address)
    assert "Waiting for a worker" in text
    assert 'hx-trigger="every 1s"' in text
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in text
    assert len(queued_tasks) == 1


def test_the_page_continues_to_the_columns_and_to_the_dataset(member, queued_tasks):
    address = send(member).url
    part = member.get(address, headers={"HX-Request": "true"})
    assert part.content.decode().lstrip().startswith('<div id="upload-progress"')
    run_queued_tasks(queued_tasks)
    assert member.get(address, headers={"HX-Request": "true"})["HX-Refresh"] == "true"
    member.post(address, build_choices(member, address))
    assert "Waiting for a worker" in read_page(member, address)
    run_queued_tasks(queued_tasks)
    assert member.get(address, headers={"HX-Request": "true"})["HX-Refresh"] == "true"
    assert member.get(address).url == Dataset.objects.get().get_absolute_url()


def test_the_page_shows_the_number_of_rows_read(member, queued_tasks, people):
    address = send(member).url
    run_queued_tasks(queued_tasks)
    member.post(address, build_choices(member, address))
    waiting = find_pending_upload(address, people)
    with waiting.job.perform():
        BackgroundJob.objects.update(done=12_345)
        assert f"{format_count(12_345)} rows so far" in read_page(member, address)
        BackgroundJob.objects.update(step="saving")
        assert "Saving the items." in read_page(member, address)


def test_the_page_says_when_no_worker_takes_it_and_how_to_start_one(member, queued_tasks):
    address = send(member).url
    BackgroundJob.objects.update(requested_at=timezone.now() - timedelta(seconds=30))
    text = read_page(member, address)
    assert re.search(r"No worker has started on these files for [3-9]\d s\.", text)
    assert "python manage.py up" in text
    assert "Try again" in text
    member.post(address, {"again": "1"})
    assert len(queued_tasks) == 2
    run_queued_tasks(queued_tasks)
    assert "First rows" in read_page(member, address)


def test_a_job_that_is_queued_twice_is_done_once(member, queued_tasks):
    address = send(member).url
    run_queued_tasks(queued_tasks)
    member.post(address, build_choices(member, address))
    queued_tasks.append(queued_tasks[0])
    run_queued_tasks(queued_tasks)
    assert Dataset.objects.count() == 1


def test_a_second_click_queues_no_second_import(member, queued_tasks):
    address = send(member).url
    run_queued_tasks(queued_tasks)
    form = build_choices(member, address)
    member.post(address, form)
    member.post(address, form)
    assert len(queued_tasks) == 1


@pytest.mark.slow
def test_a_worker_that_was_killed_while_reading_is_noticed_and_replaced(member, queued_tasks, people):
    address = send(member).url
    run_queued_tasks(queued_tasks)
    member.post(address, build_choices(member, address))
    queued_tasks.clear()
    waiting = find_pending_upload(address, people)
    with waiting.job.perform() as is_mine:
        assert is_mine
        assert not waiting.job.is_lost, "a worker holds the job, and is silent while the database works"
    assert waiting.job.is_lost
    assert "The worker that read these files has stopped." in read_page(member, address)
    assert BackgroundJob.objects.sweep() == 1
    assert "The worker that read these files has stopped." in read_page(member, address)
    member.post(address, {"again": "1"})
    run_queued_tasks(queued_tasks)
    assert Dataset.objects.get().item_count == 9


def test_a_worker_that_was_killed_after_it_had_stored_the_dataset_makes_no_second_one(
    member, queued_tasks, monkeypatch
):
    address = send(member).url
    run_queued_tasks(queued_tasks)
    member.post(address, build_choices(member, address))
    task = queued_tasks[0]

    def kill_reader(*args, **how):
        raise SystemExit

    monkeypatch.setattr(upload_jobs, "_store_result", kill_reader)
    with pytest.raises(SystemExit):
        run_queued_tasks(queued_tasks)
    monkeypatch.undo()
    assert Dataset.objects.count() == 1
    tasks.read_upload(*task[1])
    assert Dataset.objects.count() == 1
    assert member.get(address).url == Dataset.objects.get().get_absolute_url()


def test_a_parser_that_exceeds_its_limit_is_reported_and_the_upload_is_kept(member, queued_tasks, people, monkeypatch):
    original = LIMITS
    monkeypatch.setattr(limited_reader.read_table_columns, "__defaults__", (replace(original, preview_seconds=0), None))
    address = send(member, slug="kept", title="Kept").url
    with monkeypatch.context() as patch:
        stop_processes(patch)
        run_queued_tasks(queued_tasks)
    text = read_page(member, address)
    assert "items.csv cannot be read:" in text
    assert "reading items.csv takes longer than 0 s; split it" in text
    page = member.get(f"/datasets/new/?upload={find_pending_upload(address, people).token}")
    assert "Already uploaded: <strong>items.csv</strong>" in page.content.decode()
    assert (page.context["form"]["slug"].value(), page.context["form"]["title"].value()) == ("kept", "Kept")
    monkeypatch.setattr(limited_reader.read_table_columns, "__defaults__", (original, None))
    member.post(address, {"again": "1"})
    run_queued_tasks(queued_tasks)
    assert "First rows" in read_page(member, address)


def test_a_failed_worker_is_reported_and_the_entries_are_kept(member, queued_tasks, monkeypatch):
    address = send(member).url
    run_queued_tasks(queued_tasks)
    member.post(address, build_choices(member, address, expression_key="{topic}-{id}"))
    monkeypatch.setattr(upload_jobs, "read_upload", lambda *args, **how: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_queued_tasks(queued_tasks)
    page = member.get(address)
    assert "the worker failed; its log has the reason" in page.content.decode()
    assert page.context["form"]["expression_key"].value() == "{topic}-{id}"
    monkeypatch.undo()
    assert not Dataset.objects.exists()


def test_an_upload_that_is_discarded_while_it_is_read_stops_its_worker(member, queued_tasks, people, monkeypatch):
    address = send(member).url
    waiting = find_pending_upload(address, people)

    def discard_upload(file, watch, images, sheet):
        member.post(address, {"discard": "1"})
        watch(1)

    monkeypatch.setattr(upload_jobs, "read_table_columns", discard_upload)
    function, args = queued_tasks[0]
    assert import_string(function)(*args) == "discarded"
    assert not waiting.folder.exists()
    assert tasks.read_upload(*args) == "discarded"


@pytest.mark.slow
def test_a_name_refused_on_saving_is_reported_on_the_page(member, queued_tasks, people):
    address = send(member).url
    run_queued_tasks(queued_tasks)
    waiting = find_pending_upload(address, people)
    waiting.describe("Not a slug", waiting.about)
    page = post_and_work(member, address, build_choices(member, address))
    run_queued_tasks(queued_tasks)
    page = member.get(address)
    assert "name: Use small letters" in page.content.decode()
    assert not Dataset.objects.exists()
