"""Notes, flags and tags in a browser: entered by keyboard, kept over an expired session, filtered and edited."""

import re

import pytest
from django.contrib.sessions.models import Session
from django.urls import reverse
from playwright.sync_api import expect

from grading_app.grading.scoring import grade
from runs_app.models import Annotation
from runs_app.models.annotations import annotate
from tests import factories
from tests.system.browser.conftest import create_session
from tests.system.browser.page_checks import LAPTOP, press_and_wait


@pytest.fixture
def graded_experiment(owner):
    """Two conditions answer eight sums twice. Every third answer is wrong."""
    experiment = factories.make_experiment(
        "sums", owner=owner, dataset=factories.make_dataset("sums", 8), samples=2, scorers=["numeric"],
        models=[factories.make_model("a-large-model"), factories.make_model("a-small-model")], title="Sums",
    )  # fmt: skip
    for number, run in enumerate(factories.make_runs(experiment, status="done")):
        factories.plan_trials(
            run,
            answer=lambda item, _, index, number=number: {
                "answer": f"The sum is {item.target if (item.position + number) % 3 else 99}.",
                "latency_ms": 900 + index, "cost_usd": "0.00012",
            },
        )  # fmt: skip
    grade(experiment, by="a test")
    return experiment


@pytest.fixture
def trial(graded_experiment):
    return graded_experiment.runs.order_by("pk").first().trials.order_by("pk").first()


def test_a_note_and_a_flag_are_added_without_leaving_the_page(trial, owner, visitor, checked_in_all_views):
    page = visitor(owner)
    page.goto(reverse("trial_detail", args=[trial.pk]) + "?status=done")
    panel = page.locator("#annotations")
    panel.get_by_role("textbox", name="Note").focus()
    page.keyboard.type("The question is fine; jjj [ ].")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(panel.locator(".annotation-text")).to_have_text("The question is fine; jjj [ ].")
    expect(panel.get_by_role("textbox", name="Note")).to_have_value("")
    panel.get_by_label("Reason for the flag").fill("The target is wrong.")
    page.keyboard.press("Enter")
    expect(panel.get_by_role("img", name="Flag")).to_be_visible()
    panel.get_by_label("Tags").fill("Off by one, easy")
    page.keyboard.press("Enter")
    expect(panel.locator(".annotation .chip", has_text="off-by-one")).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?status=done$"))
    assert Annotation.objects.count() == 4
    checked_in_all_views(page, "trial-annotated")


def test_an_error_keeps_the_entered_text(trial, owner, visitor):
    page = visitor(owner)
    page.goto(reverse("trial_detail", args=[trial.pk]))
    panel = page.locator("#annotations")
    panel.get_by_label("Tags").fill("fine, " + "x" * 41)
    panel.get_by_role("button", name="Add tags").click()
    expect(panel.get_by_text("too long for a tag")).to_be_visible()
    expect(panel.get_by_label("Tags")).to_have_value("fine, " + "x" * 41)


def test_entered_text_survives_an_expired_session(trial, owner, visitor, live_server):
    page = visitor(owner)
    page.goto(reverse("trial_detail", args=[trial.pk]))
    page.locator("#annotations").get_by_role("textbox", name="Note").fill("A long thought.")
    Session.objects.all().delete()
    page.get_by_role("button", name="Add note").click()
    expect(page).to_have_url(re.compile(r"/accounts/login/\?next="))
    page.context.add_cookies([{"name": "sessionid", "value": create_session(owner), "url": live_server.url}])
    page.goto(reverse("trial_detail", args=[trial.pk]))
    note = page.locator("#annotations").get_by_role("textbox", name="Note")
    expect(note).to_have_value("A long thought.")
    page.get_by_role("button", name="Add note").click()
    expect(page.locator(".annotation-text")).to_have_text("A long thought.")
    page.reload()
    expect(page.locator("#annotations").get_by_role("textbox", name="Note")).to_have_value("")


def test_annotations_work_without_scripts(trial, owner, visitor):
    page = visitor(owner, java_script_enabled=False)
    page.goto(reverse("trial_detail", args=[trial.pk]))
    page.get_by_role("button", name="Flag").click()
    expect(page.get_by_role("alert")).to_contain_text("Enter the reason for the flag.")
    page.get_by_label("Reason for the flag").fill("Wrong")
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(re.compile(rf"/trials/{trial.pk}/#annotation-\d+$"))
    page.get_by_role("link", name="Edit flag").click()
    page.get_by_label("Reason for the flag").fill("Quite wrong")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#annotations")).to_contain_text("Quite wrong")
    page.locator(".annotation summary").click()
    expect(page.locator(".annotation details")).to_contain_text("Wrong")
    page.get_by_role("button", name="Remove flag").click()
    expect(page.locator(".annotation")).to_have_count(0)


def test_flagged_items_become_a_draft_dataset(graded_experiment, trial, owner, visitor, checked_in_all_views):
    annotate(trial, "flag", "The target is wrong.", by=owner)
    annotate(trial.item, "note", "Asked in another way in the second version.", by=owner)
    annotate(graded_experiment.dataset.items.get(key="item-3"), "flag", "Ambiguous", by=owner)
    page = visitor(owner)
    page.goto(reverse("experiment_annotations", args=["sums"]))
    checked_in_all_views(page, "notes")
    page.set_viewport_size(LAPTOP)
    page.get_by_label("Kind").select_option("flag")
    page.get_by_role("link", name="Draft dataset of these 2 items").click()
    page.get_by_label("Name").fill("to-rewrite")
    page.get_by_role("button", name="Create draft").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("to-rewrite")
    expect(page.get_by_text("2 items").first).to_be_visible()


def test_the_item_page_looks_right(graded_experiment, trial, owner, visitor, checked_in_all_views):
    annotate(trial.item, "flag", "Ambiguous", by=owner)
    page = visitor(owner)
    page.goto(reverse("item_page", args=[trial.item_id]))
    expect(page.get_by_role("link", name="sample 0").first).to_be_visible()
    checked_in_all_views(page, "item-answers")


def test_the_trial_list_is_sorted_and_filtered_by_its_controls(
    graded_experiment, trial, owner, visitor, checked_in_all_views
):
    annotate(trial, "flag", "The target is wrong.", by=owner)
    page = visitor(owner)
    page.goto(reverse("trial_list") + "?experiment=sums&status=done")
    page.get_by_role("columnheader", name="Latency").wait_for(state="detached")
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("Latency").check()
    page.get_by_role("button", name="Show columns").click()
    page.get_by_role("link", name="Latency").click()
    expect(page).to_have_url(re.compile(r"sort=latency"))
    expect(page.get_by_role("columnheader", name="Latency")).to_have_attribute("aria-sort", "ascending")
    checked_in_all_views(page, "trials-sorted")
    page.set_viewport_size(LAPTOP)
    page.get_by_role("link", name=re.compile("Status.*Done.*Remove")).click()
    expect(page).not_to_have_url(re.compile(r"status="))
    page.wait_for_load_state("load")  # A key has no effect before the script is loaded.
    first = page.locator("[data-rows] tbody tr a").first
    page.keyboard.press("j")
    expect(first).to_be_focused()
    press_and_wait(page, "Enter")
    expect(page).to_have_url(re.compile(r"/trials/\d+/\?.*sort=latency"))
    page.keyboard.press("j")
    page.keyboard.press("]")
    expect(page.get_by_role("heading", name="Other answers to this item")).to_be_visible()


def test_flagged_items_in_the_matrix_open_by_keyboard(graded_experiment, trial, owner, visitor, checked_in_all_views):
    annotate(trial, "flag", "The target is wrong.", by=owner)
    page = visitor(owner)
    page.goto(reverse("experiment_matrix", args=["sums"]) + "?show=flagged")
    expect(page.locator("[data-matrix] tbody tr")).to_have_count(1)
    page.locator("[data-matrix] td a").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#cell-panel")).to_contain_text("The target is wrong.")
    checked_in_all_views(page, "matrix-flagged")
