"""The design of a space of parametric tasks: the preview follows the text, and a worker builds the dataset."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from evalsite.lib import permissions
from tests import factories
from tests.integration.dataset_pages.conftest import run_task_now
from tests.system.browser.page_checks import PHONE

SPACE = """name: mine
precision: {low: {count: 3}}
tasks:
  - {name: shuffle, params: {length: [3, 4], max_depth: [2, 3]}}
"""

# Pixels between the edge of a table's frame and its first row: below 0, the row hides the edge.
ROOM_ABOVE = """frame => frame.querySelector('thead').getBoundingClientRect().top
    - frame.getBoundingClientRect().top - frame.clientTop"""


@pytest.fixture(autouse=True)
def immediate_worker(monkeypatch):
    """Run each task immediately when it is queued."""
    monkeypatch.setattr("django_q.tasks.async_task", run_task_now)


def test_the_preview_follows_the_text_and_the_dataset_is_built(transactional_db, visitor, checked, picture):
    factories.make_model("cheap")
    page = visitor(factories.make_user("researcher", permissions.RESEARCHER))
    page.goto(reverse("parametric_new"))
    expect(page.get_by_text("24 points, 768 cases")).to_be_visible()
    page.get_by_text("As text", exact=True).click()
    page.get_by_label("Space").fill(SPACE.replace("length", "lenght"))
    expect(page.get_by_text("shuffle has no such parameter; did you mean length?")).to_be_visible()
    page.get_by_label("Space").fill(SPACE)
    expect(page.get_by_text("4 points, 12 cases")).to_be_visible()
    page.get_by_text("What the preview shows").click()
    page.get_by_label("cheap").check()
    expect(page.get_by_role("row", name="cheap")).to_be_visible()
    checked(page, "parametric-1280-light")
    assert page.locator("section[aria-label='Map of shuffle'] .table-wrap").evaluate(ROOM_ABOVE) >= 0
    page.evaluate("scrollTo(0, 0)")
    picture(page, "difficulty/space")
    page.locator("#id_slug").fill("mine")
    page.get_by_role("button", name="Build dataset").click()
    expect(page.get_by_text("mine@1 is a draft of 12 items.")).to_be_visible()


def test_a_task_is_added_without_javascript_on_a_phone(transactional_db, visitor):
    page = visitor(factories.make_user("researcher", permissions.RESEARCHER), PHONE, java_script_enabled=False)
    page.goto(reverse("parametric_new"))
    page.locator("#id_task").select_option("tables")
    page.get_by_role("button", name="Add task with defaults").click()
    expect(page.get_by_label("Space")).to_have_value(re.compile(r"  - name: tables\s+params:\s+rows: 6  # "))
    expect(page.get_by_text("25 points, 800 cases")).to_be_visible()


def test_the_parameters_of_a_task_are_set_in_a_form(transactional_db, visitor, checked_in_all_views):
    page = visitor(factories.make_user("researcher", permissions.RESEARCHER))
    page.goto(reverse("parametric_new"))
    page.locator("#id_task").select_option("tables")
    page.get_by_role("button", name="Set parameters").click()
    page.locator("#id_task-rows").fill("1")
    page.get_by_role("button", name="Add task", exact=True).click()
    expect(page.get_by_text("1 is outside 2 to 200.")).to_be_visible()
    checked_in_all_views(page, "task-values")
    page.locator("#id_task-rows").fill("6, 12")
    page.get_by_role("button", name="Add task", exact=True).click()
    expect(page.get_by_label("Space")).to_have_value(re.compile(r"  - name: tables\s+params:\s+rows: \[6, 12\]"))
    expect(page.get_by_text("26 points, 832 cases")).to_be_visible()


def test_first_and_skipped_values_of_a_manifold_are_set_in_the_form(transactional_db, visitor, checked_in_all_views):
    page = visitor(factories.make_user("researcher", permissions.RESEARCHER))
    page.goto(reverse("parametric_new"))
    page.locator("#id_task").select_option("arithmetic")
    page.get_by_role("button", name="Set parameters").click()
    expect(page.locator("#id_task-length")).to_have_value("8, 16, 24, 32, 40, 48")
    expect(page.locator("#id_task-length-skip")).to_have_value("degree")
    page.locator("#id_task-length-head").fill("1")
    page.locator("#id_task-length-skip").fill("3")
    page.locator("#id_task-length-body").fill("2")
    checked_in_all_views(page, "task-window")
    page.get_by_role("button", name="Change task arithmetic").click()
    written = re.compile(
        r"length: ?\{?\s*range: \[8, 16, 24, 32, 40, 48\]\s*,?\s*window: \{head: 1, skip: 3, body: 2\}"
    )
    expect(page.get_by_label("Space")).to_have_value(written)
    expect(page.get_by_text("21 points, 672 cases")).to_be_visible()
