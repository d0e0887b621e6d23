"""The import of a study in a browser: recorded trials of another tool, from the files to their results."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from datasets_app.models import Dataset
from runs_app.models import Experiment, Trial
from tests.factories.files import build_archive
from tests.factories.queues import make_numbered_items
from tests.factories.recordings import find_recording
from tests.integration.dataset_pages.conftest import run_task_now
from tests.system.browser.page_checks import wait_for_images


@pytest.fixture(autouse=True)
def immediate_worker(monkeypatch):
    """Run each task immediately when it is queued."""
    monkeypatch.setattr("django_q.tasks.async_task", run_task_now)


def test_recorded_trials_are_checked_imported_and_shown_as_results(owner, visitor, checked_in_all_views):
    page = visitor(owner)
    page.goto(reverse("experiment_list"))
    page.get_by_role("link", name="Import a study").first.click()
    checked_in_all_views(page, "import-a-study")
    page.get_by_label("Name").fill("uniform40")
    files = [find_recording("uniform40-items.csv"), find_recording("uniform40-trials-qwen.csv")]
    page.get_by_label("Files", exact=True).set_input_files(files)
    page.get_by_role("button", name="Check files").click()
    expect(page.get_by_text("This study can be imported.")).to_be_visible()
    facts = page.locator("dl.facts")
    expect(facts).to_contain_text("Trials1 600")
    expect(facts).to_contain_text("Failed trials40")
    checked_in_all_views(page, "import-report")
    assert not Experiment.objects.exists()
    page.get_by_role("button", name="Import study").click()
    expect(page.get_by_text("uniform40 was imported.")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/experiments/uniform40/results/$"))
    expect(page.get_by_role("heading", name="Conditions")).to_be_visible()
    assert Trial.objects.count() == 1600


def test_an_invalid_import_names_the_faults_and_keeps_the_form_entries(owner, visitor, checked_in_all_views):
    page = visitor(owner)
    page.goto(reverse("study_import_new"))
    page.get_by_label("Name").fill("pilot")
    head = "model,run_id,image_id,dimension,sample_idx,status,rating"
    rows = "".join(f"small,one,Cat {n},valence,0,done,9\n" for n in range(30))
    packed = build_archive({"pilot/trials.csv": f"{head}\n{rows}".encode()}, "pilot.zip")
    file = {"name": "pilot.zip", "mimeType": "application/zip", "buffer": packed.getvalue()}
    page.get_by_label("Files", exact=True).set_input_files(file)
    page.get_by_role("button", name="Check files").click()
    expect(page.get_by_text("These files cannot be imported.")).to_be_visible()
    expect(page.get_by_text("trials.csv, row 2: rating 9 is not on the scale from 1 to 7")).to_be_visible()
    expect(page.get_by_text("Shows the first 20 of 30.")).to_be_visible()
    checked_in_all_views(page, "import-problems")
    page.get_by_role("link", name="Change entries or files").click()
    expect(page.get_by_label("Name")).to_have_value("pilot")
    expect(page.get_by_text("Already uploaded: pilot.zip")).to_be_visible()


@pytest.fixture
def media(settings, tmp_path):
    """A folder of images that the process which writes a bundle finds, too."""
    settings.DATA_DIR = tmp_path
    settings.MEDIA_ROOT = tmp_path / "media"


def test_a_dataset_is_exported_as_a_bundle_and_imported_again(owner, visitor, checked_in_all_views, tmp_path, media):
    original = make_numbered_items("photos", 4, images=True, approved=False)
    original.approve(by=owner, reason="Looked through")
    page = visitor(owner)
    page.goto(original.get_absolute_url())
    with page.expect_download() as download:
        page.get_by_role("link", name="Download bundle").click()
    download.value.save_as(tmp_path / "photos.zip")
    page.goto(reverse("study_import_new"))
    page.get_by_label("Files", exact=True).set_input_files(tmp_path / "photos.zip")
    page.get_by_role("button", name="Check files").click()
    expect(page.get_by_text("Bundle of a dataset")).to_be_visible()
    expect(page.locator("dl.facts").first).to_contain_text("Images4")
    expect(page.get_by_text("dataset photos", exact=True)).to_be_visible()
    checked_in_all_views(page, "import-bundle")
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("photos-2@1 was imported.")).to_be_visible()
    expect(page.locator(".card-item")).to_have_count(4)
    wait_for_images(page)
    copy = Dataset.objects.get(slug="photos-2")
    assert (copy.status, copy.content_hash) == ("approved", original.content_hash)
