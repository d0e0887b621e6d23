"""A reader's questions are answered as text on the first screen, at most three clicks from Home."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from grading_app.grading.scoring import grade
from grading_app.tasks import compute_aggregates
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.factories.spaces import make_space_dataset, make_space_experiment
from tests.system.browser.page_checks import LAPTOP, settle

FIRST_SCREEN = """() => {
  const texts = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    if (box.height && box.top >= 0 && box.bottom <= window.innerHeight) texts.push(walker.currentNode.textContent);
  }
  return texts.join(" ").replace(/\\s+/g, " ");
}"""
SPACE = """
name: study
precision: {low: {count: 24}}
tasks:
  - name: brackets
    params: {length: [4, 16], max_depth: [2, 4], kinds: [1]}
"""


@pytest.fixture(autouse=True)
def aggregates(monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *arguments: compute_aggregates(*arguments))


@pytest.fixture
def experiment(owner):
    """Two models over 40 questions in two waves: the large one is right on 36, the small one on 18 in each wave."""
    items = [{"key": f"q-{n:02}", "input": f"What is {n} plus {n}?", "target": str(2 * n)} for n in range(40)]
    made = factories.make_experiment(
        "sums", owner=owner, dataset=factories.make_dataset("sums", items), scorers=["exact_match"],
        models=[factories.make_model("large"), factories.make_model("small")],
    )  # fmt: skip
    limits = {"large": 36, "small": 18}
    for wave in (0, 1):
        for run in factories.make_runs(made, wave=wave, status="done"):
            limit = limits[run.condition.model.name]
            factories.plan_trials(
                run, answer=lambda item, *_, limit=limit: {"answer": item.target if item.position < limit else "no"}
            )
    grade(made, by="a test")
    make_gradings(
        made, "strict", lambda trial: float(trial.answer != "no" and trial.item.position != 3),
        rubric=make_scale_rubric("strict-rubric", low=0, high=1),
    )  # fmt: skip
    return made


WALKS = {
    "better": ["sums"],
    "items": ["sums", "Answers"],
    "judge": ["sums", "Judges"],
    "raters": ["sums", "Judges", "Agreement"],
    "drift": ["sums", "Waves"],
    "parameters": ["Surface"],
}
"""The links that lead from Home to the answer of each question."""


@pytest.fixture
def read(visitor):
    """Return `read(user, walk, words)`, which clicks the links of a walk and returns the text of the first screen.

    words: a pattern of a text that the last page shows.
    """

    def walk(user, name, words):
        page = visitor(user, LAPTOP)
        page.goto(reverse("home"))
        for link in WALKS[name]:
            with page.expect_navigation():
                page.get_by_role("link", name=link, exact=True).first.click()
        expect(page.get_by_text(re.compile(words)).first).to_be_visible()
        settle(page)
        return page.evaluate(FIRST_SCREEN)

    return walk


def test_home_has_the_best_condition(experiment, visitor):
    page = visitor(experiment.owner, LAPTOP)
    page.goto(reverse("home"))
    expect(page.get_by_role("link", name="sums", exact=True).first).to_be_visible()
    text = page.evaluate(FIRST_SCREEN)
    assert re.search(r"90\.0 %", text), text
    page.goto(reverse("experiment_list"))
    listed = page.evaluate(FIRST_SCREEN)
    assert re.search(r"90\.0 % .*large", listed), listed


def test_which_model_is_better_and_by_how_much(experiment, read):
    text = read(experiment.owner, "better", "percentage points")
    assert "large scores 45.0 percentage points higher than small." in text, text
    assert re.search(r"90\.0 % against 45\.0 %; 95 % interval \d+\.\d to \d+\.\d pp", text), text
    assert re.search(r"p < \.001", text), text


def test_on_which_items_they_differ(experiment, read):
    text = read(experiment.owner, "items", "What is")
    first = re.search(r"What is (\d+) plus", text)
    assert first, text
    assert 18 <= int(first[1]) < 36, "the large model alone is right on these items"
    assert f"= {2 * int(first[1])}" in text


@pytest.mark.parametrize("name", ["judge", "raters"])
def test_whether_to_trust_the_judge(experiment, read, name):
    text = read(experiment.owner, name, "agrees with")
    assert re.search(r"agrees with .{3,40} on 156 of 160 \(97\.5 %, .*\): 4 too strict, 0 too lenient", text), text


def test_whether_the_model_changed(experiment, read):
    text = read(experiment.owner, "drift", "difference")
    assert re.search("no difference|No difference", text), text


def test_which_parameters_break_the_model(owner, read):
    def choose_outcome(item, model):
        is_hard = item.metadata["params"]["length"] == 16
        return "wrong" if is_hard and item.position % 4 else "right"

    study = make_space_experiment(
        "study", dataset=make_space_dataset(text=SPACE), models=("large-model",), outcome=choose_outcome, owner=owner
    )
    text = read(study.owner, "parameters", "falls with")
    assert re.search(r"falls with length: 1\.00 at 4, \.\d\d at 16; no difference seen with max_depth", text), text


def test_a_word_leads_to_an_item_by_keyboard_alone(experiment, visitor, checked):
    page = visitor(experiment.owner, LAPTOP)
    page.goto(reverse("home"))
    page.keyboard.press("Control+k")
    expect(page.locator("#search-dialog")).to_be_visible()
    page.keyboard.type("what is 7")
    expect(page.locator("#search-found a").first).to_contain_text("What is 7 plus 7?")
    checked(page, "search-dialog")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("q-07")
