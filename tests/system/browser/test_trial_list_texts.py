"""The list of trials shows questions and answers of ordinary length in full at 1280 pixels."""

from django.urls import reverse
from playwright.sync_api import expect

from grading_app.grading.scoring import grade
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.system.browser.page_checks import LAPTOP

QUESTION = "How many minutes does the journey take?"
ANSWER = "Some details point the other way, but not strongly. ANSWER: 205"
IS_CUT = "text => text.scrollHeight > text.clientHeight + 1"


def test_a_question_of_two_lines_and_an_answer_of_three_are_not_cut(owner, visitor):
    dataset = factories.make_dataset("journeys", [{"key": "arithmetic-05", "input": QUESTION, "target": "205"}])
    models = [factories.make_model("sim-large")]
    experiment = factories.make_experiment(
        "study", owner=owner, dataset=dataset, models=models, scorers=["exact_match", "numeric"]
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda *_: {"answer": ANSWER})
    grade(experiment, by="a test")
    for judge in ("strict-judge", "judge-large"):
        make_gradings(experiment, judge, lambda _: 1.0, rubric=make_scale_rubric(f"{judge}-rubric", low=0, high=1))
    page = visitor(owner, LAPTOP)
    page.goto(reverse("trial_list", query={"experiment": "study"}))
    for place, text in ((".item-question", QUESTION), (".answer-cell span", ANSWER)):
        cell = page.locator(place).first
        expect(cell).to_have_text(text)
        assert not cell.evaluate(IS_CUT), place
