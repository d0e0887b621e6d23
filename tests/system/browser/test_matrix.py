"""The matrix as people see it: cells by keyboard, their answers beside them, on a laptop and on a phone."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from grading_app.scoring.grading import grade
from tests import factories
from tests.factories.queues import make_image
from tests.system.browser.page_checks import LAPTOP, PHONE


@pytest.fixture
def graded(owner):
    """Thirty sums under six conditions, asked three times; every ninth answer has no number."""
    made = factories.make_experiment(
        "sums", owner=owner, dataset=factories.make_dataset("sums", 30), scorers=["numeric"], samples=3,
        models=[factories.make_model(name) for name in ("a-large-model", "a-small-model", "another-model")],
        prompts=[factories.make_prompt("plain"), factories.make_prompt("step-by-step")],
    )  # fmt: skip
    for number, run in enumerate(factories.make_runs(made, status="done")):
        factories.plan_trials(run, answer=lambda item, _, index, number=number: _sum(item, index, number))
    grade(made, by="a test")
    return made


def _sum(item, index, number):
    if (item.position + number) % 9 == 8:
        return "I do not know."
    is_right = (item.position + index * number) % (number + 2) == 0
    return f"The sum is {int(item.target) if is_right else item.position + 100}."


@pytest.fixture
def rated(owner, settings, tmp_path):
    """Images with norms, rated five times by two models."""
    settings.MEDIA_ROOT = tmp_path
    items = [
        {"key": f"photo-{at}", "image": make_image(at), "norms": {"valence": 1 + at / 2}, "category": "scenes"}
        for at in range(12)
    ]
    made = factories.make_experiment(
        "faces", owner=owner, dataset=factories.make_dataset("photographs", items), samples=5,
        models=[factories.make_model("a-large-model"), factories.make_model("a-small-model")],
        dimensions=[factories.make_dimension("valence")],
    )  # fmt: skip
    for number, run in enumerate(factories.make_runs(made, status="done")):
        factories.plan_trials(run, answer=lambda item, _, index, number=number: _rating(item, index, number))
    return made


def _rating(item, index, number):
    rating = max(1, min(7, round(1 + item.position / 2) + (index * (number + 1)) % 3 - 1))
    return {"answer": str(rating), "rating": rating}


def here(page):
    """The label of the cell with the focus, without its scores."""
    return page.evaluate("document.activeElement.getAttribute('aria-label')").partition(":")[0]


def test_keys_move_between_cells_and_open_their_answers(graded, visitor, checked):
    page = visitor(graded.owner, LAPTOP)
    page.goto(reverse("experiment_matrix", args=[graded.slug]))
    page.locator("[data-matrix] td a").first.focus()
    for key, row in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1)):
        page.keyboard.press(key)
        assert here(page).startswith(f"item-{row}, "), key
    first = here(page)
    page.keyboard.press("ArrowRight")
    second = here(page)
    assert second != first
    page.keyboard.press("Home")
    assert here(page) == first
    page.keyboard.press("Enter")
    panel = page.locator("#cell-panel")
    expect(panel.locator(".cell-trials > li")).to_have_count(3)
    expect(panel.get_by_role("heading")).to_have_text("item-1")
    page.keyboard.press("ArrowDown")
    expect(panel.get_by_role("heading")).to_have_text("item-2")
    expect(page).to_have_url(re.compile(r"/matrix/$"))
    checked(page, "matrix-panel-1280")
    page.keyboard.press("Enter")
    expect(panel).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel).to_be_empty()
    assert here(page).startswith("item-2, ")


def test_the_header_and_first_column_stay_visible_while_scrolling(graded, visitor):
    page = visitor(graded.owner, PHONE)
    page.goto(reverse("experiment_matrix", args=[graded.slug]))
    wrap = page.locator(".matrix-wrap")
    wrap.evaluate("box => { box.scrollLeft = 10000; box.scrollTop = 300; }")
    assert wrap.evaluate("box => box.scrollLeft") > 0
    box, corner = wrap.bounding_box(), page.locator(".score-matrix thead th").first.bounding_box()
    assert (round(corner["x"] - box["x"]), round(corner["y"] - box["y"])) == (1, 1)
    assert corner["width"] < box["width"] / 2, "the scores have more than half of a phone"
    page.locator("[data-matrix] tbody tr").nth(8).locator("td a").last.click()
    panel = page.locator("#cell-panel")
    expect(panel.locator(".cell-trials > li")).to_have_count(3)
    page.get_by_role("button", name="Close the answers").click()
    expect(panel).to_be_empty()


def test_the_matrix_looks_right(graded, rated, visitor, checked_in_all_views):
    page = visitor(graded.owner)
    page.goto(reverse("experiment_matrix", args=[graded.slug]) + "?sort=disagreement")
    checked_in_all_views(page, "matrix-graded")
    page.goto(reverse("experiment_matrix", args=[rated.slug]) + "?sort=norm")
    expect(page.locator(".score-matrix svg line").first).to_be_attached()
    checked_in_all_views(page, "matrix-rated")
    page.locator("[data-matrix] td a").first.click()
    expect(page.locator("#cell-panel .cell-trials > li")).to_have_count(5)
    checked_in_all_views(page, "matrix-rated-panel")


def test_a_cell_is_a_link_without_scripts(graded, visitor):
    page = visitor(graded.owner, java_script_enabled=False)
    page.goto(reverse("experiment_matrix", args=[graded.slug]))
    page.locator("[data-matrix] td a").first.click()
    expect(page.get_by_role("link", name="Back to matrix")).to_be_visible()
    expect(page.locator(".cell-trials > li")).to_have_count(3)
