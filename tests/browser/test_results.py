"""The results of an experiment as people see them: figures are there, follow the theme, and fit a phone."""

import pytest
from django.urls import reverse

from grading_app.grading import grade
from tests import factories
from tests.browser.conftest import LAPTOP, PHONE

VIEWS = [(LAPTOP, "light"), (LAPTOP, "dark"), (PHONE, "light"), (PHONE, "dark")]
IDS = ["laptop-light", "laptop-dark", "phone-light", "phone-dark"]
WAIT_FOR_PICTURES = "[...document.images].every(image => image.complete && image.naturalWidth > 0)"


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
        factories.plan_trials(run, answer=lambda item, _, index, number=number: said(int(item.target), index, number))
    grade(made, by="a test")
    return made


def said(at, index, number):
    rating = max(1, min(7, round(1 + at * 6 / 39 + (at * 7 + index + number) % 5 - 2)))
    is_right = (at + index * number) % (number + 2) == 0
    return {"answer": str(at if is_right else at + 1) if at % 9 else "no idea", "rating": rating}


@pytest.mark.parametrize(("viewport", "theme"), VIEWS, ids=IDS)
def test_results_look_right(viewport, theme, experiment, visitor, checked):
    page = visitor(experiment.owner, viewport, color_scheme=theme)
    page.goto(reverse("experiment_results", args=[experiment.slug]))
    page.wait_for_function(WAIT_FOR_PICTURES)
    assert page.locator("figure img").count() == 4
    checked(page, f"results-{theme}-{viewport['width']}")
    for menu in ("Grade", "Export"):
        page.locator("summary", has_text=menu).click()
        box = page.locator("details[open] > :not(summary)").bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= viewport["width"], menu
        page.locator("summary", has_text=menu).click()


@pytest.mark.parametrize(("viewport", "theme"), [VIEWS[0], VIEWS[3]], ids=[IDS[0], IDS[3]])
def test_waves_look_right(viewport, theme, experiment, visitor, checked):
    for number, run in enumerate(factories.make_runs(experiment, wave=1, status="done")):
        factories.plan_trials(run, answer=lambda item, _, index, number=number: said(int(item.target), index, number))
    page = visitor(experiment.owner, viewport, color_scheme=theme)
    page.goto(reverse("experiment_progress", args=[experiment.slug]))
    page.get_by_role("link", name="Compare waves").click()
    assert page.get_by_role("heading", name="Scores").is_visible()
    checked(page, f"waves-{theme}-{viewport['width']}")


def test_the_numbers_behind_a_figure_open_beneath_it(experiment, visitor, checked):
    page = visitor(experiment.owner, PHONE)
    page.goto(reverse("experiment_results", args=[experiment.slug]))
    card = page.locator("#figure-accuracy")
    card.locator("summary").click()
    assert "a-large-model" in card.locator("table").inner_text()
    checked(page, "results-numbers")


def test_a_saved_figure_opens_by_itself(experiment, visitor):
    page = visitor(experiment.owner)
    page.goto(reverse("experiment_figure", args=[experiment.slug, "norms"]) + "?theme=dark")
    assert page.locator("svg text", has_text="Valence").first.is_visible()
