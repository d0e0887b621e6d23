"""The results of an experiment in a browser: figures are loaded, follow the theme and fit a phone."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from grading_app.scoring.grading import grade
from tests import factories
from tests.system.browser.page_checks import LAPTOP, PHONE


@pytest.fixture
def experiment(owner):
    """Forty rated and graded items in four categories, under four conditions with long names."""
    kinds = ("animals", "objects", "people at work and at play", "scenes")
    items = [
        {"key": f"photo-{at}", "target": str(at), "category": kinds[at % 4], "norms": {"valence": 1 + at * 6 / 39}}
        for at in range(40)
    ]
    made = factories.make_experiment(
        "affect-and-arithmetic",
        owner=owner,
        dataset=factories.make_dataset("photographs", items),
        models=[factories.make_model("a-large-model"), factories.make_model("a-small-model")],
        prompts=[factories.make_prompt("plain"), factories.make_prompt("step-by-step")],
        dimensions=[factories.make_dimension("valence")],
        scorers=["numeric"],
        samples=3,
    )
    for number, run in enumerate(factories.make_runs(made, status="done")):
        factories.plan_trials(
            run, answer=lambda item, _, index, number=number: make_answer(int(item.target), index, number)
        )
    grade(made, by="a test")
    return made


def make_answer(at, index, number):
    rating = max(1, min(7, round(1 + at * 6 / 39 + (at * 7 + index + number) % 5 - 2)))
    is_right = (at + index * number) % (number + 2) == 0
    return {"answer": str(at if is_right else at + 1) if at % 9 else "no idea", "rating": rating}


def test_results_look_right(experiment, visitor, checked_in_all_views):
    page = visitor(experiment.owner)
    page.goto(reverse("experiment_results", args=[experiment.slug]))
    expect(page.locator("figure img")).to_have_count(5)
    checked_in_all_views(page, "results")
    for viewport in (LAPTOP, PHONE):
        page.set_viewport_size(viewport)
        for menu in ("Grade", "Export"):
            page.locator("summary", has_text=menu).click()
            panel = page.locator("details[open] > :not(summary)")
            expect(panel).to_be_visible()
            box = panel.bounding_box()
            assert 0 <= box["x"] <= box["x"] + box["width"] <= viewport["width"], menu
            page.locator("summary", has_text=menu).click()
            expect(panel).to_have_count(0)


def test_waves_look_right(experiment, visitor, checked_in_all_views):
    for number, run in enumerate(factories.make_runs(experiment, wave=1, status="done")):
        factories.plan_trials(
            run, answer=lambda item, _, index, number=number: make_answer(int(item.target), index, number)
        )
    page = visitor(experiment.owner)
    page.goto(reverse("experiment_progress", args=[experiment.slug]))
    page.get_by_role("link", name="Compare waves").click()
    expect(page.get_by_role("heading", name="Scores")).to_be_visible()
    checked_in_all_views(page, "waves")


def test_the_values_of_a_figure_open_below_it(experiment, visitor, checked):
    page = visitor(experiment.owner, PHONE)
    page.goto(reverse("experiment_results", args=[experiment.slug]))
    card = page.locator("#figure-accuracy")
    card.locator("summary").click()
    expect(card.locator("table")).to_be_visible()
    expect(card.locator("table")).to_contain_text("a-large-model")
    checked(page, "results-numbers")


def test_a_saved_figure_opens_on_its_own(experiment, visitor):
    page = visitor(experiment.owner)
    page.goto(reverse("experiment_figure", args=[experiment.slug, "norms"]) + "?theme=dark")
    expect(page.locator("svg text", has_text="Valence").first).to_be_visible()
