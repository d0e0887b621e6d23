"""The forms of a newcomer ask for little: an endpoint in four fields, a design and a space of tasks in one screen."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from evalsite.lib import permissions
from runs_app.planning.shipped_designs import create_shipped_designs
from tests import factories
from tests.system.browser.page_checks import LAPTOP, find_all_faults, settle, show

PARTS = {
    "what": "#what", "who": "#who", "how": "#how", "how much": "#how-much", "size and cost": "#design-summary",
}  # fmt: skip
BOTTOMS = """parts => Object.fromEntries(Object.entries(parts)
    .map(([name, part]) => [name, Math.round(document.querySelector(part).getBoundingClientRect().bottom)]))"""
FORM_BOTTOM = """() => Math.round(Math.max(
    ...[...document.querySelectorAll('.design-grid, .design-grid ~ details, .beside')]
        .map(part => part.getBoundingClientRect().bottom)))"""


@pytest.fixture
def parts(transactional_db):
    """The parts of a small study on a site with its shipped prompts and samplers."""
    create_shipped_designs()
    items = [{"key": f"q{n}", "input": f"What is {n} plus {n}?", "target": str(2 * n)} for n in range(50)]
    factories.make_dataset("sums", items)
    for name in ("big", "tiny"):
        factories.make_model(name)


def test_an_endpoint_needs_four_fields_and_folds_the_rest(operator, visitor, checked_in_all_views):
    page = visitor(operator)
    page.goto(reverse("endpoint_new"))
    fields = page.locator("main form").locator("input:visible, select:visible, textarea:visible")
    assert fields.evaluate_all("all => all.map(field => field.name)") == ["provider", "base_url", "key_env", "name"]
    checked_in_all_views(page, "endpoint form")
    assert find_all_faults(page) == []
    page.get_by_text("Advanced", exact=True).click()
    expect(page.get_by_label("Calls in flight")).to_be_visible()
    assert fields.count() > 4
    checked_in_all_views(page, "endpoint form, advanced")
    assert find_all_faults(page) == []


def test_a_usual_design_fits_one_screen_with_cost_power_and_example(parts, owner, visitor, checked_in_all_views):
    page = visitor(owner, LAPTOP)
    page.goto(reverse("experiment_new"))
    page.locator("[name=dataset]").select_option(label="sums@1")
    for name in ("big", "tiny", "answer-line@1", "temperature-0@1"):
        page.get_by_role("checkbox", name=re.compile(f"^{name}")).check()
    expect(page.locator("#design-summary")).to_contain_text("100 = 2 conditions × 50 items × 1 sample")
    expect(page.locator("#design-summary")).to_contain_text("Detectable effect")
    expect(page.get_by_role("heading", name="Example request")).to_be_visible()
    checked_in_all_views(page, "design form")
    assert find_all_faults(page) == []
    show(page, LAPTOP, "light")
    settle(page)
    bottoms, height = page.evaluate(BOTTOMS, PARTS), page.evaluate(FORM_BOTTOM)
    print(f"design form: {height} px of {LAPTOP['height']}; parts end at {bottoms}")
    assert height <= LAPTOP["height"], bottoms


def test_a_space_of_tasks_is_a_form_beside_its_size_and_text_only_on_request(transactional_db, visitor):
    page = visitor(factories.make_user("researcher", permissions.RESEARCHER), LAPTOP)
    page.goto(reverse("parametric_new"))
    expect(page.get_by_text("24 points, 768 cases")).to_be_in_viewport()
    expect(page.get_by_label("Space")).to_be_hidden()
    settle(page)
    bottoms = page.evaluate(BOTTOMS, {"build": "[name=build]", "points": "#preview-tasks"})
    assert max(bottoms.values()) <= LAPTOP["height"], bottoms
    page.get_by_text("As text", exact=True).click()
    expect(page.get_by_label("Space")).to_be_visible()
