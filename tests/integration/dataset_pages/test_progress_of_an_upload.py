"""A worker reads an upload; its page shows how far that is, and what to do where nobody reads it. Nothing is lost."""

import time
from dataclasses import replace

import pytest
from django.utils.module_loading import import_string

from datasets_app import pending_uploads, tasks, upload_jobs
from datasets_app.importing import LIMITS, limited_reader
from datasets_app.models import Dataset
from evalsite.lib.text.number_format import format_count
from runs_app.taskqueue.task_payloads import FUNCTIONS
from tests.integration.dataset_pages.test_uploading import choices, post, send


@pytest.fixture
def queue(monkeypatch):
    """Tasks that nobody does until the test says so."""
    queued = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda function, *args, **how: queued.append((function, args)))
    return queued


@pytest.fixture
def member(as_):
    return as_("researcher")


def work(queue):
    while queue:
        function, args = queue.pop(0)
        import_string(function)(*args)


def waiting_at(address, people):
    return pending_uploads.find_upload(people["researcher"].pk, address.split("/")[-2])


def text_of(client, address):
    return client.get(address).content.decode()


def test_the_task_is_on_the_list_of_allowed_tasks():
    assert pending_uploads.READ_UPLOAD in FUNCTIONS
    assert import_string(pending_uploads.READ_UPLOAD) is tasks.read_upload


def test_the_web_server_reads_nothing_of_an_upload(member, queue, monkeypatch):
    monkeypatch.setattr(limited_reader, "_run_task", None)
    address = send(member).url
    text = text_of(member, address)
    assert "Waiting for a worker" in text
    assert 'hx-trigger="every 1s"' in text
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in text
    assert len(queue) == 1


def test_the_page_continues_to_the_columns_and_to_the_dataset(member, queue):
    address = send(member).url
    part = member.get(address, headers={"HX-Request": "true"})
    assert part.content.decode().lstrip().startswith('<div id="upload-progress"')
    work(queue)
    assert member.get(address, headers={"HX-Request": "true"})["HX-Refresh"] == "true"
    member.post(address, choices(member, address))
    assert "Waiting for a worker" in text_of(member, address)
    work(queue)
    assert member.get(address, headers={"HX-Request": "true"})["HX-Refresh"] == "true"
    assert member.get(address).url == Dataset.objects.get().get_absolute_url()


def test_the_page_shows_the_number_of_rows_read(member, queue, people):
    address = send(member).url
    work(queue)
    member.post(address, choices(member, address))
    waiting = waiting_at(address, people)
    waiting.store_job(replace(waiting.job, state="reading", seen_at=time.time(), rows=12_345))
    assert f"{format_count(12_345)} rows so far" in text_of(member, address)
    waiting.store_job(replace(waiting.job, state="saving", seen_at=time.time()))
    assert "Saving the items." in text_of(member, address)


def test_the_page_says_when_no_worker_takes_it_and_how_to_start_one(member, queue, people):
    address = send(member).url
    waiting = waiting_at(address, people)
    waiting.store_job(replace(waiting.job, asked_at=time.time() - 30))
    text = text_of(member, address)
    assert "No worker has started on these files for 30 s." in text
    assert "python manage.py up" in text
    assert "Try again" in text
    member.post(address, {"again": "1"})
    assert len(queue) == 2
    work(queue)
    assert "First rows" in text_of(member, address)


def test_a_job_that_is_queued_twice_is_done_once(member, queue):
    address = send(member).url
    work(queue)
    member.post(address, choices(member, address))
    queue.append(queue[0])
    work(queue)
    assert Dataset.objects.count() == 1


def test_a_second_click_queues_no_second_import(member, queue):
    address = send(member).url
    work(queue)
    form = choices(member, address)
    member.post(address, form)
    member.post(address, form)
    assert len(queue) == 1


@pytest.mark.slow
def test_a_worker_that_was_killed_while_reading_is_noticed_and_replaced(member, queue, people):
    address = send(member).url
    work(queue)
    member.post(address, choices(member, address))
    queue.clear()
    waiting = waiting_at(address, people)
    waiting.store_job(replace(waiting.job, state="reading", seen_at=time.time() - 60))
    assert "The worker that read these files has stopped." in text_of(member, address)
    with waiting.try_lock() as free:
        assert free
        assert not waiting.is_orphaned, "somebody is at it, and silent while the database works"
    member.post(address, {"again": "1"})
    work(queue)
    assert Dataset.objects.get().item_count == 9


def test_a_worker_that_was_killed_after_it_had_stored_the_dataset_makes_no_second_one(member, queue, monkeypatch):
    address = send(member).url
    work(queue)
    member.post(address, choices(member, address))
    task = queue[0]

    def killed(*args, **how):
        raise SystemExit

    monkeypatch.setattr(upload_jobs, "_store_result", killed)
    with pytest.raises(SystemExit):
        work(queue)
    monkeypatch.undo()
    assert Dataset.objects.count() == 1
    tasks.read_upload(*task[1])
    assert Dataset.objects.count() == 1
    assert member.get(address).url == Dataset.objects.get().get_absolute_url()


def test_a_parser_that_exceeds_its_limit_is_reported_and_the_upload_is_kept(member, queue, people, monkeypatch):
    original = LIMITS
    monkeypatch.setattr(limited_reader.read_table_columns, "__defaults__", (replace(original, preview_seconds=0), None))
    address = send(member, slug="kept", title="Kept").url
    work(queue)
    text = text_of(member, address)
    assert "items.csv cannot be read:" in text
    assert "reading items.csv takes longer than 0 s; split it" in text
    again = member.get(f"/datasets/new/?upload={waiting_at(address, people).token}")
    assert "Already uploaded: <strong>items.csv</strong>" in again.content.decode()
    assert (again.context["form"]["slug"].value(), again.context["form"]["title"].value()) == ("kept", "Kept")
    monkeypatch.setattr(limited_reader.read_table_columns, "__defaults__", (original, None))
    member.post(address, {"again": "1"})
    work(queue)
    assert "First rows" in text_of(member, address)


def test_a_failed_worker_is_reported_and_the_entries_are_kept(member, queue, monkeypatch):
    address = send(member).url
    work(queue)
    member.post(address, choices(member, address, expression_key="{topic}-{id}"))
    monkeypatch.setattr(upload_jobs, "read_upload", lambda *args, **how: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        work(queue)
    page = member.get(address)
    assert "the worker failed; its log has the reason" in page.content.decode()
    assert page.context["form"]["expression_key"].value() == "{topic}-{id}"
    monkeypatch.undo()
    assert not Dataset.objects.exists()


def test_an_upload_that_is_discarded_while_it_is_read_stops_its_worker(member, queue, people, monkeypatch):
    address = send(member).url
    waiting = waiting_at(address, people)

    def discarded(file, watch):
        member.post(address, {"discard": "1"})
        watch(1)

    monkeypatch.setattr(upload_jobs, "read_table_columns", discarded)
    function, args = queue[0]
    assert import_string(function)(*args) == "discarded"
    assert not waiting.folder.exists()
    assert tasks.read_upload(*args) == "discarded"


@pytest.mark.slow
def test_a_name_refused_on_saving_is_reported_on_the_page(member, queue, people):
    address = send(member).url
    work(queue)
    waiting = waiting_at(address, people)
    waiting.describe("Not a slug", waiting.about)
    page = post(member, address, choices(member, address))
    work(queue)
    page = member.get(address)
    assert "name: Use small letters" in page.content.decode()
    assert not Dataset.objects.exists()
