"""A worker reads tables of norms; the web server only stores the file and shows the progress."""

import pytest
from django.utils.module_loading import import_string

from datasets_app import curation, pending_uploads
from datasets_app.importing import limited_reader
from datasets_app.models import Norm
from tests.factories.files import build_upload
from tests.integration.dataset_pages.conftest import build_address

TABLE = "id,calm_mean\nk0,3.5\nk1,4\n"


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


def send_norms(member, draft, table=TABLE):
    return member.post(build_address(draft, "dataset_norms"), {"norms": build_upload(table, "calm.csv")}).url


def read_page(member, address):
    return member.get(address).content.decode()


def count_calm_norms():
    return Norm.objects.filter(dimension="calm").count()


def find_pending_upload(address, people):
    return pending_uploads.find_upload(people["researcher"].pk, address.rpartition("=")[2])


def test_the_web_server_reads_nothing_of_the_table(member, draft, queued_tasks, monkeypatch):
    monkeypatch.setattr(limited_reader, "_run_task", None)
    address = send_norms(member, draft)
    assert address.startswith(f"{build_address(draft, 'dataset_norms')}?upload=")
    text = read_page(member, address)
    assert "Waiting for a worker" in text
    assert f'hx-get="{address}"' in text
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in text
    assert [function for function, _ in queued_tasks] == [pending_uploads.READ_UPLOAD]
    assert not count_calm_norms()


def test_the_page_continues_to_the_details_of_the_dataset(member, draft, queued_tasks):
    address = send_norms(member, draft)
    part = member.get(address, headers={"HX-Request": "true"})
    assert part.content.decode().lstrip().startswith('<div id="upload-progress"')
    run_queued_tasks(queued_tasks)
    assert count_calm_norms() == 2
    assert member.get(address, headers={"HX-Request": "true"})["HX-Refresh"] == "true"
    page = member.get(address, follow=True)
    assert page.redirect_chain == [(build_address(draft, "dataset_about"), 302)]
    assert "2 norms are stored." in page.content.decode()


def test_errors_come_back_with_the_form_and_a_new_table_replaces_the_old_one(member, draft, queued_tasks):
    address = send_norms(member, draft, "id,calm_mean\nk0,much\n")
    run_queued_tasks(queued_tasks)
    text = read_page(member, address)
    assert "&#x27;much&#x27; is not a number" in text
    assert not count_calm_norms()
    second_address = member.post(address, {"norms": build_upload(TABLE, "calm.csv")}).url
    assert second_address != address
    run_queued_tasks(queued_tasks)
    assert count_calm_norms() == 2


def test_a_dataset_frozen_meanwhile_accepts_no_norms(member, draft, queued_tasks, people):
    address = send_norms(member, draft)
    draft.approve(by=people["curator"], reason="checked")
    run_queued_tasks(queued_tasks)
    assert not count_calm_norms()
    assert member.get(address).status_code == 404


def test_a_dataset_that_was_deleted_meanwhile_ends_the_task(member, draft, queued_tasks, people):
    address = send_norms(member, draft)
    waiting = find_pending_upload(address, people)
    draft.delete_draft(by=people["researcher"], reason="a mistake")
    run_queued_tasks(queued_tasks)
    assert (waiting.job.state, waiting.job.problem) == ("failed", "the dataset was deleted")


def test_a_worker_that_was_killed_is_noticed_and_replaced(member, draft, queued_tasks, people):
    address = send_norms(member, draft)
    queued_tasks.clear()
    waiting = find_pending_upload(address, people)
    with waiting.job.perform():
        pass  # It dies before the end.
    assert "The worker that read these files has stopped." in read_page(member, address)
    member.post(address, {"again": "1"})
    run_queued_tasks(queued_tasks)
    assert count_calm_norms() == 2


def test_a_table_can_be_discarded(member, draft, queued_tasks, people):
    address = send_norms(member, draft)
    folder = find_pending_upload(address, people).folder
    member.post(address, {"discard": "1"})
    assert not folder.exists()
    run_queued_tasks(queued_tasks)
    assert not count_calm_norms()


def test_an_upload_of_norms_belongs_to_its_dataset_and_is_not_an_upload_of_items(
    member, draft, pictures, queued_tasks, people
):
    token = send_norms(member, draft).rpartition("=")[2]
    assert member.get(f"/datasets/new/upload/{token}/").status_code == 404
    assert "Already uploaded" not in read_page(member, f"/datasets/new/?upload={token}")
    other = curation.duplicate(pictures, by=people["researcher"], reason="")
    assert "Waiting for a worker" not in read_page(member, f"{build_address(other, 'dataset_norms')}?upload={token}")
