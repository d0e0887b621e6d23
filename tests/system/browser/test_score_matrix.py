"""The score matrix in a browser: cells by keyboard, their answers beside them, on a laptop and on a phone."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from grading_app.grading.scoring import grade
from tests import factories
from tests.factories.queues import make_image
from tests.system.browser.page_checks import LAPTOP, PHONE


@pytest.fixture
def graded_experiment(owner):
    """Six conditions answer thirty sums three times. Every ninth answer has no number."""
    experiment = factories.make_experiment(
        "sums", owner=owner, dataset=factories.make_dataset("sums", 30), scorers=["numeric"], samples=3,
        models=[factories.make_model(name) for name in ("a-large-model", "a-small-model", "another-model")],
        prompts=[factories.make_prompt("plain"), factories.make_prompt("step-by-step")],
    )  # fmt: skip
    for number, run in enumerate(factories.make_runs(experiment, status="done")):
        factories.plan_trials(run, answer=lambda item, _, index, number=number: _make_sum(item, index, number))
    grade(experiment, by="a test")
    return experiment


def _make_sum(item, index, number):
    if (item.position + number) % 9 == 8:
        return "I do not know."
    is_right = (item.position + index * number) % (number + 2) == 0
    return f"The sum is {int(item.target) if is_right else item.position + 100}."


@pytest.fixture
def rated_experiment(owner, settings, tmp_path):
    """Images with norms, rated five times by two models."""
    settings.MEDIA_ROOT = tmp_path
    items = [
        {
            "key": f"photo-{position}",
            "image": make_image(position),
            "norms": {"valence": 1 + position / 2},
            "category": "scenes",
        }
        for position in range(12)
    ]
    experiment = factories.make_experiment(
        "faces", owner=owner, dataset=factories.make_dataset("photographs", items), samples=5,
        models=[factories.make_model("a-large-model"), factories.make_model("a-small-model")],
        dimensions=[factories.make_dimension("valence")],
    )  # fmt: skip
    for number, run in enumerate(factories.make_runs(experiment, status="done")):
        factories.plan_trials(run, answer=lambda item, _, index, number=number: _make_rating(item, index, number))
    return experiment


def _make_rating(item, index, number):
    rating = max(1, min(7, round(1 + item.position / 2) + (index * (number + 1)) % 3 - 1))
    return {"answer": str(rating), "rating": rating}


def read_focused_cell(page):
    """Return the label of the focused cell, without its scores."""
    return page.evaluate("document.activeElement.getAttribute('aria-label')").partition(":")[0]


def test_keys_move_between_cells_and_open_their_answers(graded_experiment, visitor, checked):
    page = visitor(graded_experiment.owner, LAPTOP)
    page.goto(reverse("experiment_matrix", args=[graded_experiment.slug]))
    heads = page.locator("[data-matrix] tbody th")
    names = [re.search(r"item-\d+", head)[0] for head in heads.all_inner_texts()]
    assert names[:3] != ["item-0", "item-1", "item-2"], "the items with the most disagreement are first"
    page.locator("[data-matrix] td a").first.focus()
    for key, row in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1)):
        page.keyboard.press(key)
        assert read_focused_cell(page).startswith(f"{names[row]}, "), key
    first = read_focused_cell(page)
    page.keyboard.press("ArrowRight")
    second = read_focused_cell(page)
    assert second != first
    page.keyboard.press("Home")
    assert read_focused_cell(page) == first
    page.keyboard.press("Enter")
    panel = page.locator("#cell-panel")
    expect(panel.locator(".cell-trials > li")).to_have_count(3)
    expect(panel.get_by_role("heading")).to_have_text(names[1])
    page.keyboard.press("ArrowDown")
    expect(panel.get_by_role("heading")).to_have_text(names[2])
    expect(page).to_have_url(re.compile(r"/matrix/$"))
    checked(page, "matrix-panel-1280")
    page.keyboard.press("Enter")
    expect(panel).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel).to_be_empty()
    assert read_focused_cell(page).startswith(f"{names[2]}, ")


def test_the_header_and_first_column_stay_visible_while_scrolling(graded_experiment, visitor):
    page = visitor(graded_experiment.owner, PHONE)
    page.goto(reverse("experiment_matrix", args=[graded_experiment.slug]))
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


def test_the_matrix_looks_right(graded_experiment, rated_experiment, visitor, checked_in_all_views):
    page = visitor(graded_experiment.owner)
    page.goto(reverse("experiment_matrix", args=[graded_experiment.slug]) + "?sort=disagreement")
    checked_in_all_views(page, "matrix-graded")
    page.goto(reverse("experiment_matrix", args=[rated_experiment.slug]) + "?sort=norm")
    expect(page.locator(".score-matrix svg line").first).to_be_attached()
    checked_in_all_views(page, "matrix-rated")
    page.locator("[data-matrix] td a").first.click()
    expect(page.locator("#cell-panel .cell-trials > li")).to_have_count(5)
    checked_in_all_views(page, "matrix-rated-panel")


def test_a_cell_is_a_link_without_scripts(graded_experiment, visitor):
    page = visitor(graded_experiment.owner, java_script_enabled=False)
    page.goto(reverse("experiment_matrix", args=[graded_experiment.slug]))
    page.locator("[data-matrix] td a").first.click()
    expect(page.get_by_role("link", name="Back to matrix")).to_be_visible()
    expect(page.locator(".cell-trials > li")).to_have_count(3)
