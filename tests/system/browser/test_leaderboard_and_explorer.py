"""A reader goes from the leaderboard to a task's surface, to a cell, and to the trials that it counts."""

import random
import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from grading_app.results.parametric.explorer_query import VIEWS
from grading_app.tasks import compute_aggregates
from tests.factories.spaces import make_space_dataset, make_space_experiment
from tests.system.browser.page_checks import LAPTOP, PHONE

SPACE = """
name: study
precision: {low: {count: 12}}
tasks:
  - name: brackets
    params: {length: [4, 8, 12, 16], max_depth: [2, 4, 6], kinds: [1, 3]}
  - name: swaps
    task: shuffle
    params: {length: [3, 5], max_depth: [2, 6, 10]}
  - name: sort
    params: {length: [4, 8], run_length: [1, 3]}
"""
SKILL = {"large-model": 3.6, "middle-model": 2.2, "small-model": 0.6}


def choose_outcome(item, model):
    rng = random.Random(f"{item.key} {model}")
    params = item.metadata["params"]
    level = SKILL[model] - 0.16 * params["length"] - 0.1 * params.get("max_depth", 0)
    if params["length"] == 16 and rng.random() < 0.2:
        return "cut"
    return "right" if rng.random() < 1 / (1 + 2.718 ** (-level)) else "wrong"


@pytest.fixture
def study(owner, monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *arguments: compute_aggregates(*arguments))
    return make_space_experiment(
        "study", dataset=make_space_dataset(text=SPACE), models=tuple(SKILL), outcome=choose_outcome, owner=owner
    )


def test_a_reader_follows_links_from_the_leaderboard_to_the_trials_of_a_cell(study, visitor, checked):
    page = visitor(study.owner, LAPTOP)
    page.goto(reverse("home"))
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Experiments").click()
    page.get_by_role("navigation", name="Experiments").get_by_role("link", name="Task leaderboard").click()
    expect(page.locator(".model-board tbody tr")).to_have_count(3)
    expect(page.locator(".model-board tbody tr").first).to_contain_text("large-model")
    page.get_by_role("link", name="Score per token").click()
    expect(page).to_have_url(re.compile("sort=-per-token"))
    checked(page, "leaderboard-sorted")
    page.locator(".model-board tbody tr", has_text="small-model").locator("td a").first.click()
    expect(page.locator(".surface-map")).to_be_visible()
    expect(page.get_by_label("Condition")).to_have_value(str(study.conditions.get(model__name="small-model").pk))
    page.get_by_label("Down").select_option("kinds")
    expect(page).to_have_url(re.compile("y=kinds"))
    page.get_by_label("max_depth").select_option("4")
    expect(page).to_have_url(re.compile("at-max_depth=4"))
    cells = page.locator(".surface-map td a")
    expect(cells).to_have_count(8)
    n = int(re.search(r"n (\d+)", cells.last.inner_text())[1])
    cut = page.locator(".surface-map td").last.locator(".cut").count()
    cells.last.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("study")
    rows = page.locator("table.data-table tbody tr")
    expect(rows).to_have_count(12)
    assert n == 12 if not cut else n < 12
    expect(page).to_have_url(re.compile(r"point=.*length%3D16.*"))
    page.go_back()
    expect(page.get_by_label("max_depth")).to_have_value("4")


def test_leaderboard_and_views_look_right(study, visitor, checked_in_all_views, picture):
    page = visitor(study.owner)
    page.goto(reverse("leaderboard"))
    checked_in_all_views(page, "leaderboard")
    picture(page, "difficulty/leaderboard")
    for view in VIEWS:
        page.goto(reverse("explorer", args=[study.slug]) + f"?view={view}&task=brackets")
        for figure in page.locator("figure img").all():
            figure.scroll_into_view_if_needed()
            expect(figure).to_have_js_property("complete", True)
            assert figure.evaluate("image => image.naturalWidth") > 0, view
        checked_in_all_views(page, f"explorer-{view}")
        if view == next(iter(VIEWS)):
            picture(page, "difficulty/explorer")


def test_a_hundred_models_stay_readable(owner, visitor, checked_in_all_views):
    names = tuple(f"vendor-{number % 9}-model-with-a-long-name-{number}" for number in range(100))
    text = "name: one\nprecision: {low: {count: 2}}\ntasks:\n" + "".join(
        f"  - {{name: task-{number}, task: brackets, params: {{length: [{3 + number}]}}}}\n" for number in range(10)
    )
    make_space_experiment(
        "wide", dataset=make_space_dataset(text=text), models=names, outcome=draw_outcome_by_number, owner=owner
    )
    page = visitor(owner, PHONE)
    page.goto(reverse("leaderboard"))
    expect(page.locator(".model-board tbody tr")).to_have_count(100)
    wrap = page.locator(".matrix-wrap")
    wrap.evaluate("box => { box.scrollLeft = 400; box.scrollTop = 2000; }")
    assert wrap.evaluate("box => [box.scrollLeft > 0, box.scrollTop > 0]") == [True, True]
    box, corner = wrap.bounding_box(), page.locator(".model-board thead th").first.bounding_box()
    assert (round(corner["x"] - box["x"]), round(corner["y"] - box["y"])) == (1, 1)
    assert corner["width"] < box["width"] / 2, "the scores have more than half of a phone"
    checked_in_all_views(page, "leaderboard-of-a-hundred")
    page.set_viewport_size(LAPTOP)
    name = page.locator(".model-board tbody th").first.bounding_box()
    assert name["width"] > 200, "a long name breaks into pieces"


def draw_outcome_by_number(item, model):
    skill = int(model.rpartition("-")[2])
    return "right" if (item.position * 37 + skill) % 100 >= skill * 0.9 else "wrong"


def test_the_explorer_works_without_scripts(study, visitor):
    page = visitor(study.owner, java_script_enabled=False)
    page.goto(reverse("explorer", args=[study.slug]))
    page.get_by_role("link", name="Heat map").click()
    page.get_by_label("Task", exact=True).select_option("swaps")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".surface-map caption")).to_contain_text("swaps by length and max_depth")
