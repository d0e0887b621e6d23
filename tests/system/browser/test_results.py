"""The results of an experiment in a browser: figures are loaded, follow the theme and fit a phone."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from grading_app.grading.scoring import grade
from tests import factories
from tests.system.browser.page_checks import PHONE


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
    expect(page.locator("figure img:visible")).to_have_count(1)
    checked_in_all_views(page, "results")
    page.locator("#more > summary").click()
    expect(page.locator("figure img:visible")).to_have_count(4)
    checked_in_all_views(page, "results-more")


def test_files_look_right(experiment, visitor, checked_in_all_views):
    page = visitor(experiment.owner)
    page.goto(reverse("experiment_results", args=[experiment.slug]))
    page.get_by_role("link", name="Files").first.click()
    expect(page.get_by_role("link", name="Trials, Parquet")).to_be_visible()
    expect(page.get_by_role("button", name="Create snapshot")).to_be_visible()
    checked_in_all_views(page, "files")


@pytest.fixture
def quiz(owner):
    """Forty questions under two models and two prompts; the large model knows ten more answers."""
    items = [{"key": f"sum-{at:02}", "input": f"How much is {at} and {at}?", "target": str(2 * at)} for at in range(40)]
    made = factories.make_experiment(
        "sums",
        owner=owner,
        dataset=factories.make_dataset("sums", items),
        models=[factories.make_model("large"), factories.make_model("small")],
        prompts=[factories.make_prompt("plain"), factories.make_prompt("step-by-step")],
        scorers=["numeric"],
    )
    for run in factories.make_runs(made, status="done"):
        known = 34 if run.condition.model.name == "large" else 24
        factories.plan_trials(run, answer=lambda item, *_, n=known: item.target if item.position < n else "-1")
    grade(made, by="a test")
    return made


def test_the_first_screen_says_which_is_better_and_on_which_items(quiz, visitor):
    page = visitor(quiz.owner, {"width": 1280, "height": 900})
    page.goto(reverse("experiment_results", args=[quiz.slug]))
    better = page.get_by_text("large scores 25.0 percentage points higher than small.")
    prompts = page.get_by_text("plain and step-by-step have the same mean.")
    item = page.get_by_role("link", name="sum-24")
    first = page.locator("tr", has=item)
    for shown in (better, prompts, item, first):
        expect(shown).to_be_visible()
        box = shown.bounding_box()
        assert box["y"] + box["height"] <= 900, shown
    assert first.inner_text().split()[-4:] == ["right", "right", "wrong", "wrong"]
    item.click()
    expect(page.get_by_role("heading", name="sum-24")).to_be_visible()


def test_the_page_of_a_small_study_fits_on_two_screens(quiz, visitor):
    page = visitor(quiz.owner, {"width": 1280, "height": 900})
    page.goto(reverse("experiment_results", args=[quiz.slug]))
    assert page.evaluate("document.documentElement.scrollHeight") <= 1800


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
    page.locator("#more > summary").click()
    card = page.locator("#figure-accuracy")
    card.locator("summary").click()
    expect(card.locator("table")).to_be_visible()
    expect(card.locator("table")).to_contain_text("a-large-model")
    checked(page, "results-numbers")


def test_a_saved_figure_opens_on_its_own(experiment, visitor):
    page = visitor(experiment.owner)
    page.goto(reverse("figure_file", args=[experiment.slug, "norms", "svg"]) + "?theme=dark")
    expect(page.locator("svg text", has_text="Valence").first).to_be_visible()
