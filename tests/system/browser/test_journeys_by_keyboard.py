"""The journeys of researchers by keyboard alone: no test here uses a mouse. Raters' keys have tests of their own."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from runs_app.models import Experiment, Run
from tests.integration.pages.conftest import make_lab, make_people

MOST_TABS = 250


@pytest.fixture
def world(transactional_db, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    return make_lab(make_people())


@pytest.fixture
def page(world, visitor):
    return visitor(world.people["owner"])


def tab_to(page, target):
    """Press Tab until the target has the focus."""
    for _ in range(MOST_TABS):
        if target.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"Tab does not reach {target}")


def press_on(page, target, key="Enter"):
    tab_to(page, target)
    page.keyboard.press(key)


def test_find_an_experiment(page, world):
    page.goto(reverse("home"))
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Search")).to_be_visible()
    page.keyboard.type("pilot")
    found = page.locator("#search-found").get_by_role("link", name=re.compile("pilot")).first
    expect(found).to_be_visible()
    press_on(page, found)
    expect(page).to_have_url(re.compile(reverse("experiment_detail", args=["pilot"])))


def test_design_an_experiment(page, world):
    page.goto(reverse("experiment_new"))
    tab_to(page, page.get_by_label("Name", exact=True))
    page.keyboard.type("by-keyboard")
    dataset = page.locator("select[name=dataset]")
    tab_to(page, dataset)
    while dataset.evaluate("select => select.selectedOptions[0].text") != str(world.experiment.dataset):
        page.keyboard.press("ArrowDown")
    press_on(page, page.locator("summary", has_text="Rating dimensions"))
    for name in ("dimensions", "language_models", "prompts", "samplers"):
        press_on(page, page.locator(f"input[name={name}]").first, "Space")
    press_on(page, page.locator("button:visible", has_text="Save draft"))
    expect(page).to_have_url(re.compile(reverse("experiment_detail", args=["by-keyboard"])))
    draft = Experiment.objects.get(slug="by-keyboard")
    assert draft.dataset == world.experiment.dataset
    assert (draft.language_models.count(), draft.prompts.count(), draft.dimensions.count()) == (1, 1, 1)


def test_pause_a_running_experiment(page, world):
    Run.objects.filter(pk=world.run.pk).update(n_pending=15, n_done=0, n_failed=0, status="running")
    page.goto(reverse("experiment_progress", args=["pilot"]))
    press_on(page, page.locator("summary", has_text="Pause").first)
    press_on(page, page.locator("details[open] > .action-form").get_by_role("button"))
    expect(page.get_by_text("1 run paused.")).to_be_visible()


def test_read_from_the_results_to_one_trial_and_flag_it(page, world):
    page.goto(reverse("experiment_results", args=["pilot"]))
    press_on(page, page.locator(".tabs a", has_text="Answers"))
    cell = page.locator(".score-matrix td > a").first
    press_on(page, cell)
    trial = page.locator(".cell-answers a[href*='/trials/']").first
    expect(trial).to_be_visible()
    press_on(page, trial)
    expect(page).to_have_url(re.compile(r"/trials/\d+/"))
    tab_to(page, page.get_by_label("Reason for the flag"))
    page.keyboard.type("odd answer")
    page.keyboard.press("Enter")
    expect(page.get_by_text("odd answer").first).to_be_visible()


def test_choose_the_sections_of_a_report(page, world):
    page.goto(reverse("report_edit", args=["pilot"]))
    section = page.locator(".report-choice input[type=checkbox]").first
    assert section.is_checked()
    press_on(page, section, "Space")
    press_on(page, page.get_by_role("button", name="Save", exact=True))
    expect(page).to_have_url(re.compile(reverse("experiment_report", args=["pilot"])))
    page.goto(reverse("report_edit", args=["pilot"]))
    expect(section).not_to_be_checked()
