"""The budget policy in a browser: launch the dev items, then the remaining items."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from runs_app.models import Run, Trial
from tests import factories
from tests.factories.engine import build_provider
from tests.system.browser.page_checks import drain_in_thread


@pytest.fixture
def draft(owner):
    return factories.make_experiment(
        "capitals",
        owner=owner,
        dataset=factories.make_dataset("places", 6),
        models=[factories.make_model("small", max_output_tokens=100)],
        samples=2,
        cache=False,
    )


def test_dev_items_are_launched_before_the_remaining_items(draft, owner, visitor, checked_in_all_views):
    page = visitor(owner)
    page.goto(reverse("experiment_edit", args=["capitals"]))
    page.get_by_text("Launch: every item and sample").click()
    page.get_by_label("Policy").select_option("dev")
    page.get_by_label("Dev items").fill("1")
    page.get_by_label("Dev samples").fill("1")
    checked_in_all_views(page, "policy-form")
    page.get_by_role("button", name="Save draft").click()
    page.get_by_role("link", name="Launch", exact=True).click()
    expect(
        page.get_by_text("Dev policy: the first 1 of 6 items, 1 of 2 samples, without the batch API.")
    ).to_be_visible()
    checked_in_all_views(page, "policy-launch")
    page.get_by_role("button", name="Launch experiment", exact=True).click()
    expect(page.locator("#live")).to_contain_text("0 of 1")
    drain_in_thread(build_provider("Paris"))
    assert Run.objects.get().status == "done"

    page.reload()
    page.get_by_role("link", name="Launch the rest").click()
    expect(page.get_by_text("Trials to run")).to_be_visible()
    page.get_by_role("button", name="Launch experiment", exact=True).click()
    expect(page.get_by_text("Launched: 11 new trials, 12 in all, in 1 run.")).to_be_visible()
    assert Trial.objects.filter(status="done", answer="Paris").count() == 1
    page.goto(reverse("experiment_edit", args=["capitals"]))
    expect(page.get_by_label("Time-out")).to_be_visible()
    checked_in_all_views(page, "launched-settings")
