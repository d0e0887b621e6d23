"""A dataset of the Hugging Face hub, from its name on a form to a draft, on a laptop and a phone."""

from django.urls import reverse
from playwright.sync_api import expect

from datasets_app.models import Dataset
from evalsite.lib import permissions
from tests import factories
from tests.factories.hub import SECOND, serve_site_hub
from tests.integration.dataset_pages.conftest import run_task_now

CSV = "id,question,answer\na,1 + 1?,2\nb,2 + 2?,4\n"


def test_a_hub_split_becomes_a_draft_dataset(
    transactional_db, visitor, checked, checked_in_all_views, monkeypatch, tmp_path
):
    monkeypatch.setattr("django_q.tasks.async_task", run_task_now)
    page = visitor(factories.make_user("curator", permissions.CURATOR))
    with serve_site_hub(monkeypatch, tmp_path / "home", CSV, CSV):
        page.goto(reverse("dataset_new"))
        page.get_by_role("link", name="Hugging Face hub").click()
        checked_in_all_views(page, "datasets-hub")
        page.get_by_label("Dataset", exact=True).fill("lab/sums")
        page.get_by_label("Split").fill("test")
        page.get_by_label("Revision").fill("v9")
        page.get_by_label("Name").fill("Sums of two")
        page.get_by_role("button", name="Download and map columns").click()
        expect(page.get_by_text("lab/sums has no revision 'v9'")).to_be_visible()
        checked_in_all_views(page, "datasets-hub-failed")
        page.get_by_role("link", name="Edit the download").click()
        expect(page.get_by_label("Split")).to_have_value("test")
        page.get_by_label("Revision").fill("main")
        page.get_by_role("button", name="Download and map columns").click()
        expect(page.get_by_text("First rows")).to_be_visible()
        checked(page, "datasets-hub-mapping-1280-light")
        page.get_by_role("button", name="Import items").click()
        expect(page.get_by_text("sums-of-two@1 is a draft of 2 items.")).to_be_visible()
    assert Dataset.objects.get().recipe["revision"] == SECOND
