"""From a finished run to "A beats B by d [low, high] on these items", by keyboard, on a laptop and on a phone."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from grading_app.grading.scoring import grade
from tests import factories
from tests.system.browser.page_checks import LAPTOP, PHONE, press_and_wait

SENTENCE = "steady beats hasty by 30.0 pp ["


@pytest.fixture
def quiz(owner):
    """Two models answer 40 questions step by step: `steady` is right on 32, `hasty` on 20 of these."""
    question = "Ann has {} apples and buys {} more. How many has she?"
    items = [
        {"key": f"sum-{number:02}", "input": question.format(number, number + 2), "target": str(2 * number + 2)}
        for number in range(40)
    ]
    experiment = factories.make_experiment(
        "apples",
        owner=owner,
        dataset=factories.make_dataset("apple-sums", items),
        models=[factories.make_model("hasty"), factories.make_model("steady")],
        prompts=[factories.make_prompt("plain")],
        scorers=["numeric"],
    )
    for run in factories.make_runs(experiment, status="done"):
        right = 20 if run.condition.model.name == "hasty" else 32
        factories.plan_trials(run, answer=lambda item, *_, right=right: make_solution(item, right))
    grade(experiment, by="a test")
    return experiment


def make_solution(item, right):
    number = item.position
    total = 2 * number + 2 if number < right else 2 * number
    return (
        f"Ann starts with {number} apples.\nShe buys {number + 2} more, so that makes {total}.\nThe answer is {total}"
    )


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_a_reader_finds_the_better_condition_and_the_items_that_differ(quiz, visitor, checked, viewport):
    page = visitor(quiz.owner, viewport)
    page.goto(reverse("experiment_results", args=[quiz.slug]))
    expect(page.locator("#table-conditions").get_by_text("Best", exact=True)).to_be_visible()
    checked(page, f"leaderboard-{viewport['width']}")
    page.get_by_role("link", name="80.0 %").focus()
    press_and_wait(page, "Enter")
    expect(page.locator(".compare-result")).to_contain_text(SENTENCE)
    expect(page.locator(".compare-result")).to_contain_text("on 40 common items (exact McNemar test")
    checked(page, f"compare-{viewport['width']}")
    page.get_by_role("link", name="Gained 12").focus()
    press_and_wait(page, "Enter")
    expect(page.locator(".compare-row")).to_have_count(12)
    page.keyboard.press("j")
    expect(page.locator(".compare-row a", has_text="sum-20")).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator(".compare-row a", has_text="sum-21")).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator(".compare-row a", has_text="sum-20")).to_be_focused()
    checked(page, f"compare-flips-{viewport['width']}")
    press_and_wait(page, "Enter")
    expect(page.locator(".turn-assistant").get_by_text("The answer is 42")).to_be_visible()


def test_two_conditions_are_chosen_by_keyboard(quiz, visitor):
    page = visitor(quiz.owner)
    page.goto(reverse("compare"))
    page.get_by_label("A", exact=True).focus()
    page.keyboard.type("hasty")
    page.keyboard.press("Tab")
    page.keyboard.type("steady")
    page.keyboard.press("Tab")
    press_and_wait(page, "Enter")
    expect(page.locator(".compare-result")).to_contain_text(SENTENCE)


def test_two_selected_experiments_are_compared(quiz, visitor, checked):
    other = factories.make_experiment(
        "pears",
        owner=quiz.owner,
        dataset=quiz.dataset,
        models=[factories.make_model("careful")],
        prompts=[quiz.prompts.get()],
        scorers=["numeric"],
    )
    for run in factories.make_runs(other, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: make_solution(item, 38))
    grade(other, by="a test")
    page = visitor(quiz.owner)
    page.goto(reverse("experiment_list"))
    expect(page.get_by_role("row").filter(has_text="apples").get_by_role("link", name="80.0 %")).to_be_visible()
    checked(page, "experiments-with-scores")
    page.get_by_label("Compare pears").check()
    page.get_by_label("Compare apples").check()
    page.get_by_role("button", name="Compare ticked experiments").click()
    expect(page.locator(".compare-result")).to_contain_text(
        "pears / careful beats apples / all conditions by 30.0 pp ["
    )
