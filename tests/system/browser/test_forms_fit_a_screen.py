"""The forms of a newcomer ask for little: an endpoint in four fields, a design with its cost on the first screen."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from runs_app.planning.shipped_designs import create_shipped_designs
from tests import factories
from tests.system.browser.page_checks import LAPTOP, find_all_faults, settle, show

PARTS = {
    "what": "#what", "who": "#who", "how": "#how", "how much": "#how-much", "size and cost": "#design-summary",
}  # fmt: skip
BOTTOMS = """parts => Object.fromEntries(Object.entries(parts)
    .map(([name, part]) => [name, Math.round(document.querySelector(part).getBoundingClientRect().bottom)]))"""
FORM_BOTTOM = """() => Math.round(Math.max(...[...document.querySelectorAll('.design-grid, .beside, #execution')]
    .map(part => part.getBoundingClientRect().bottom)))"""


@pytest.fixture
def parts(transactional_db):
    """The parts of a small study on a site with its shipped prompts and samplers."""
    create_shipped_designs()
    factories.make_dataset("capitals", [{"key": "q1", "input": "Capital of France?", "target": "Paris"}])
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


def test_a_design_shows_its_four_parts_and_its_cost_on_the_first_screen(parts, owner, visitor):
    page = visitor(owner, LAPTOP)
    page.goto(reverse("experiment_new"))
    page.locator("[name=dataset]").select_option(label="capitals@1")
    for name in ("language_models", "prompts", "samplers"):
        page.locator(f"[name={name}]").first.check()
    expect(page.get_by_role("heading", name="Example request")).to_be_visible()
    show(page, LAPTOP, "light")
    settle(page)
    bottoms, height = page.evaluate(BOTTOMS, PARTS), page.evaluate(FORM_BOTTOM)
    print(f"design form: {height} px of {LAPTOP['height']}; parts end at {bottoms}")
    assert all(bottom <= LAPTOP["height"] for bottom in bottoms.values()), bottoms
