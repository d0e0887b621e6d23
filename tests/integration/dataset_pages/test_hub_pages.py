"""Import of a Hugging Face split on the pages: the rows and commit equal those of the command."""

from html import unescape

import pytest
from django.urls import reverse

from datasets_app import pending_uploads, upload_jobs
from datasets_app.models import BackgroundJob, Dataset
from tests.factories.files import build_upload
from tests.factories.hub import FIRST, SECOND, serve_site_hub
from tests.integration.dataset_pages.test_uploading import build_choices
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
CSV = "id,question,answer\na,1 + 1?,2\nb,2 + 2?,4\n"
HUB = "/datasets/new/hub/"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with serve_site_hub(monkeypatch, tmp_path / "home", CSV, CSV + "c,3 + 3?,6\n") as served:
        yield served


@pytest.fixture
def member(as_):
    return as_("researcher")


def send(client, **fields):
    form_data = {"repository": "lab/sums", "revision": "main", "split": "test", "slug": "sums", **fields}
    return client.post(HUB, form_data)


def test_a_branch_is_downloaded_at_its_commit_mapped_and_imported(member, hub):
    address = send(member, source="The lab", title="Sums").url
    page = member.get(address)
    for words in ("First rows", "3 + 3?", f"sums@{SECOND[:12]}-test.csv"):
        assert words in page_text(page)
    assert not Dataset.objects.exists()
    answer = member.post(address, build_choices(member, address), follow=True)
    assert "sums@1 is a draft of 3 items." in page_text(answer)
    dataset = Dataset.objects.get()
    assert dataset.source == f"The lab\nHugging Face hub: lab/sums, split test, revision {SECOND}"
    assert (dataset.title, dataset.licence, dataset.recipe["revision"]) == ("Sums", "mit", SECOND)
    assert dataset.items.values_list("key", "input", "target")[0] == ("a", "1 + 1?", "2")


def test_a_commit_gives_its_own_rows(member, hub):
    address = send(member, revision=FIRST).url
    member.post(address, build_choices(member, address))
    assert (Dataset.objects.get().item_count, Dataset.objects.get().recipe["revision"]) == (2, FIRST)


def test_the_token_of_the_site_is_never_used_for_a_page(member, hub):
    send(member)
    assert {header for _, _, header in hub.requests} == {None}
    hub.private = True
    text = page_text(member.get(send(member).url))
    assert "the hub has no dataset lab/sums; if it is private, ask an operator to run" in text


def test_a_failed_download_says_why_and_returns_to_the_entries(member, hub):
    address = send(member, revision="v9", title="My sums").url
    page = member.get(address)
    text = unescape(page_text(page))
    assert "lab/sums cannot be downloaded:" in text
    assert "lab/sums has no revision 'v9': name a branch, a tag or a commit. Nothing was saved." in text
    form_url = f"{HUB}?upload={address.split('/')[-2]}"
    assert form_url in page.content.decode()
    form = member.get(form_url).context["form"]
    assert {name: form[name].value() for name in ("repository", "revision", "split", "title")} == {
        "repository": "lab/sums", "revision": "v9", "split": "test", "title": "My sums",
    }  # fmt: skip
    second_address = send(member, upload=address.split("/")[-2])
    assert second_address.url == address
    assert "First rows" in page_text(member.get(address))


def test_a_download_is_tried_again_after_the_hub_was_unreachable(member, hub, monkeypatch):
    with monkeypatch.context() as offline:
        offline.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        address = send(member).url
    text = page_text(member.get(address))
    assert "the Hugging Face hub at 127.0.0.1 cannot be reached" in text
    assert "or download the file elsewhere and import it" in text
    member.post(address, {"again": "1"})
    assert "First rows" in page_text(member.get(address))


def test_other_entries_replace_the_downloaded_file_and_its_origin(member, hub):
    address = send(member).url
    assert send(member, upload=address.split("/")[-2], revision=FIRST).url == address
    member.post(address, build_choices(member, address))
    dataset = Dataset.objects.get()
    assert (dataset.item_count, dataset.source.count("Hugging Face hub"), FIRST in dataset.source) == (2, 1, True)


def test_an_uploaded_file_in_place_of_the_downloaded_one_has_no_origin(member, hub):
    token = send(member).url.split("/")[-2]
    address = member.post(reverse("dataset_new"), {"file": build_upload(CSV), "slug": "sums", "upload": token}).url
    member.post(address, build_choices(member, address))
    dataset = Dataset.objects.get()
    assert (dataset.source, dataset.recipe) == ("", {})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"repository": "https://evil.example/x"}, "Write OWNER/NAME, such as openai/gsm8k"),
        ({"repository": "../../etc"}, "Write OWNER/NAME"),
        ({"repository": ""}, "This field is required."),
        ({"revision": ""}, "This field is required."),
    ],
)
def test_wrong_entries_are_refused_without_a_request(member, hub, entry, message):
    page = send(member, title="My sums", **entry)
    assert message in page_text(page)
    assert page.context["form"]["title"].value() == "My sums"
    assert not hub.requests


@pytest.mark.parametrize("entry", [{"revision": "../../../elsewhere"}, {"data_file": "../../secret.csv"}])
def test_no_entry_leads_out_of_the_dataset_on_the_hub(member, hub, entry):
    assert "cannot be downloaded" in page_text(member.get(send(member, **entry).url))
    assert all(path.startswith("/api/datasets/lab/sums/revision/") for _, path, _ in hub.requests)
    assert not any("/../" in path for _, path, _ in hub.requests)


def test_the_page_shows_the_progress_of_a_download(member, hub, people, monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", lambda *args, **how: None)
    address = send(member).url
    assert "Waiting for a worker</strong> to download the files." in page_text(member.get(address))
    pending = pending_uploads.find_upload(people["researcher"].pk, address.split("/")[-2])
    with pending.job.perform():
        BackgroundJob.objects.update(done=3 * 2**20, total=12 * 2**20)
        page = member.get(address)
        assert "Downloading lab/sums: 3.0\xa0MB of 12.0\xa0MB." in page_text(page)
        assert 'max="12582912" value="3145728"' in page.content.decode()
        assert member.get(HUB, {"upload": pending.token}).url == address


def test_the_bytes_of_a_download_are_reported_while_it_runs(member, hub, monkeypatch):
    reports = []
    monkeypatch.setattr("datasets_app.importing.hub_dataset.REPORT_S", 0.001)
    monkeypatch.setattr(BackgroundJob, "report", lambda job, done, total=None: reports.append(total))
    send(member)
    assert len(hub.files[SECOND]["data/test.csv"]) in reports


def test_a_discarded_download_leaves_nothing(member, hub, people):
    address = send(member).url
    member.post(address, {"discard": "1"})
    assert pending_uploads.find_upload(people["researcher"].pk, address.split("/")[-2]) is None
    assert not BackgroundJob.objects.exists()
    assert upload_jobs.run_job(0) == "discarded"


def test_the_two_ways_to_import_link_to_each_other(member, hub):
    assert HUB in member.get(reverse("dataset_new")).content.decode()
    assert reverse("dataset_new") in member.get(HUB).content.decode()
