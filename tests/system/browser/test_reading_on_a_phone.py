"""On a phone, results are cards, no page scrolls sideways, and a strip of tabs that goes on shows an arrow."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from grading_app.grading.scoring import grade
from grading_app.tasks import compute_aggregates
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.system.browser.page_checks import LAPTOP, PHONE, settle

PAGES = (
    "experiment_results", "experiment_analysis", "experiment_waves", "experiment_agreement", "experiment_grading",
    "experiment_progress", "experiment_detail", "experiment_ledger",
)  # fmt: skip
WIDE_TABLES = """() => [...document.querySelectorAll('#main table:not(.matrix):not(.score-matrix)')]
    .filter(table => table.checkVisibility() && table.parentElement.scrollWidth > table.parentElement.clientWidth + 1)
    .map(table => table.closest('[id]').id)"""
ARROW = "strip => getComputedStyle(strip, '::after').content"


@pytest.fixture
def study(owner, monkeypatch):
    """Two models and two prompts in two waves over 24 questions, graded by a rule and by a judge."""
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *arguments: compute_aggregates(*arguments))
    items = [{"key": f"question-{n:02}", "input": f"What is {n} plus {n}?", "target": str(2 * n)} for n in range(24)]
    made = factories.make_experiment(
        "arithmetic-of-models", owner=owner, dataset=factories.make_dataset("sums", items), scorers=["exact_match"],
        models=[factories.make_model("a-large-model"), factories.make_model("a-small-model")],
        prompts=[factories.make_prompt("plain"), factories.make_prompt("step-by-step")],
    )  # fmt: skip
    for wave in (0, 1):
        for at, run in enumerate(factories.make_runs(made, wave=wave, status="done")):
            factories.plan_trials(
                run, answer=lambda item, *_, at=at: item.target if item.position < 20 - 4 * at else "no"
            )
    grade(made, by="a test")
    make_gradings(
        made, "strict", lambda trial: float(trial.answer != "no" and trial.item.position != 3),
        rubric=make_scale_rubric("strict-rubric", low=0, high=1),
    )  # fmt: skip
    return made


def test_no_page_scrolls_sideways_and_no_table_is_wider_than_its_card(study, visitor):
    page = visitor(study.owner, PHONE)
    addresses = [reverse(name, args=[study.slug]) for name in PAGES]
    for address in (reverse("home"), reverse("experiment_list"), reverse("dataset_list"), *addresses):
        for _ in range(2):  # The first visit computes what the second one shows.
            page.goto(address)
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], address
        assert page.evaluate(WIDE_TABLES) == [], address


def test_a_strip_of_tabs_shows_an_arrow_as_long_as_it_goes_on(study, visitor):
    page = visitor(study.owner, PHONE)
    page.goto(reverse("experiment_detail", args=[study.slug]))
    strips = [page.get_by_role("navigation", name=name, exact=True) for name in ("Main", "Experiment")]
    for strip in strips:
        assert strip.evaluate("strip => strip.scrollWidth > strip.clientWidth"), "the strip does not fit the phone"
        expect(strip).to_be_visible()
        page.wait_for_function(f"strip => ({ARROW})(strip).includes('›')", arg=strip.element_handle())
        strip.evaluate("strip => strip.scrollTo({left: strip.scrollWidth, behavior: 'instant'})")
        page.wait_for_function(f"strip => !({ARROW})(strip).includes('›')", arg=strip.element_handle())
    page.set_viewport_size(LAPTOP)
    for strip in strips:
        page.wait_for_function(f"strip => !({ARROW})(strip).includes('›')", arg=strip.element_handle())
