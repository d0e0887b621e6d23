"""A curator writes a rubric, sees it on a stored answer, approves it; a researcher adds the judge and sees scores."""

import re

import pytest
from playwright.sync_api import expect

from evalsite.lib import permissions
from grading_app.grading.judging.item_rubrics import RubricWriter
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import Grader, Rubric
from runs_app.llm.rubric_checks import STARTERS
from runs_app.models import Experiment
from tests import factories
from tests.factories.engine import build_reply
from tests.factories.judges import build_judge
from tests.system.browser.page_checks import LAPTOP, PHONE, drain_in_thread

TITLE_IS_READABLE = """() => {
    const title = document.querySelector('.selector-chosen-title');
    return title && getComputedStyle(title.querySelector('label')).color !== getComputedStyle(title).backgroundColor;
}"""


@pytest.fixture
def curator(transactional_db):
    curator = factories.make_user("curator", permissions.CURATOR)
    curator.is_staff = True
    curator.save()
    return curator


@pytest.fixture
def experiment(owner):
    owner.is_staff = True
    owner.save()
    models = [factories.make_model("small"), factories.make_model("large", model="judges/large")]
    experiment = factories.make_experiment(
        "pilot", owner=owner, samples=4, models=models, status="active", sharing="group"
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(
            run, answer=lambda item, dimension, index, run=run: f"It is {item.target}, {index} of {run.pk}."
        )
    return experiment


def score_answer(request):
    return 1.0 if "It is 0" in str(request.messages) else {"score": 0.25, "reasoning": "It leaves out the working."}


def write_rubric(page, checked, picture):
    page.goto("/library/new/rubrics/?starter=score")
    page.get_by_label("Name").fill("fair")
    message = page.get_by_label("Message")
    message.fill("Question: {{input}}\n\nAnswer:\n{{answer}}\n\nReference: ")
    page.get_by_role("button", name="{{target}}").click()
    expect(message).to_have_value(re.compile(r"Reference: \{\{target\}\}$"))
    page.locator("[name=experiment]").select_option(label="pilot")
    preview = page.locator("#editor-preview")
    expect(preview.get_by_text("Question: What is 0 plus 0?")).to_be_visible()
    expect(preview).to_contain_text("BEGIN")
    message.press_sequentially(" {{wrong}}")
    expect(preview.get_by_text("unknown variable {{wrong}}")).to_be_visible()
    for _ in " {{wrong}}":
        message.press("Backspace")
    expect(preview.get_by_text("Reference: 0")).to_be_visible()
    checked(page, "rubric editor")
    picture(page, "judging/rubric")
    page.set_viewport_size(PHONE)
    checked(page, "rubric editor, phone")
    page.set_viewport_size(LAPTOP)


def approve_rubric(page):
    page.get_by_label("Reason for the approval").fill("Read on twenty answers")
    page.get_by_role("button", name="Save and approve").click()
    expect(page.get_by_text("fair@1 is saved and approved.")).to_be_visible()
    rubric = Rubric.objects.get()
    assert (rubric.status, rubric.history.get().reason) == ("approved", "Read on twenty answers")


def add_judge(page):
    page.goto("/library/new/judge/")
    page.get_by_label("Name").fill("strict")
    page.locator("[name=language_model]").select_option(label="large")
    page.locator("[name=rubric]").select_option(label="fair@1")
    expect(page.get_by_role("group", name="New rubric")).not_to_be_visible()
    page.get_by_role("button", name="Save judge", exact=True).click()
    expect(page.get_by_role("heading", name="strict")).to_be_visible()
    assert Grader.objects.get().sampler.temperature == 0


def check_panel_form(page):
    page.goto("/admin/grading_app/panel/add/")
    page.wait_for_function(TITLE_IS_READABLE)


def open_scores(page):
    """Open the scores of the judge while the page refreshes. They stay open in the next version of the page."""
    line = page.locator(".grade-line")
    fold = line.locator("summary").filter(has_text="Scores by condition")
    scores = line.get_by_role("cell", name="0.50", exact=True)
    fold.click()
    expect(scores).to_have_count(2)
    page.locator("#grading").evaluate("part => { part.dataset.former = 'yes'; }")
    expect(page.locator("#grading:not([data-former])")).to_be_visible()
    expect(scores).to_have_count(2)
    expect(fold).to_be_focused()


def test_a_rubric_is_written_tried_approved_and_used_for_scores(visitor, checked, picture, curator, experiment):
    page = visitor(curator)
    write_rubric(page, checked, picture)
    approve_rubric(page)
    researcher = visitor(experiment.owner)
    add_judge(researcher)
    check_panel_form(researcher)
    researcher.goto("/experiments/pilot/grading/")
    checked(researcher, "grading tab, empty")
    researcher.get_by_role("link", name="Add judge").first.click()
    researcher.get_by_role("button", name="Show cost").click()
    expect(researcher.get_by_text("Verdicts to request")).to_be_visible()
    checked(researcher, "add a judge")
    researcher.get_by_role("button", name="Request verdicts").click()
    expect(researcher.get_by_text("24 verdicts are requested.")).to_be_visible()
    drain_in_thread(build_judge(score_answer))
    read_verdicts(experiment)
    open_scores(researcher)
    expect(researcher.get_by_text("Self-preference.")).to_be_visible()
    researcher.reload()
    checked(researcher, "grading tab")
    researcher.set_viewport_size(PHONE)
    checked(researcher, "grading tab, phone")
    researcher.goto(experiment.answer_runs.first().trials.order_by("-item", "pk").first().get_absolute_url())
    expect(researcher.get_by_text("It leaves out the working.")).to_be_visible()
    checked(researcher, "an answer with its verdict, phone")
    researcher.get_by_role("link", name="The judge's call").click()
    expect(researcher.get_by_text("A judge's call: its verdict is on")).to_be_visible()
    researcher.goto("/experiments/pilot/judge/draw/")
    researcher.get_by_label("Name").fill("bench")
    researcher.get_by_label("How many").fill("1")
    researcher.get_by_label("Strata by").select_option("none")
    researcher.get_by_role("button", name="Draw judges").click()
    expect(researcher.get_by_role("button", name="Request verdicts")).to_be_visible()
    checked(researcher, "judges drawn, phone")


def test_item_rubrics_are_reviewed_and_corrected(visitor, checked, curator, experiment):
    starter = STARTERS["writer"]
    turns = [{"role": "system", "content": starter.system}, {"role": "user", "content": starter.user}]
    template = Rubric.objects.create(name="by-reference", kind="writer", messages=turns, status="approved")
    sampler = factories.make_sampler("cold", temperature=0, max_tokens=200)
    writer = RubricWriter(Experiment.objects.get(), template, factories.make_model("author"), sampler)
    texts = writer.request(name="own", by=experiment.owner)

    async def write_text(request):
        return build_reply(
            "Right if it gives the sum as a number.\nThe working may be missing.\nWrong if it names two numbers."
        )

    drain_in_thread(write_text)
    assert texts.collect() == 3
    page = visitor(curator)
    page.goto("/item-rubrics/")
    checked(page, "item rubrics, list")
    page.get_by_role("link", name="own@1").click()
    expect(page.get_by_role("heading", name="own@1")).to_be_visible()
    checked(page, "item rubrics")
    page.get_by_role("link", name="Correct item-1").click()
    page.get_by_label("Text").fill("Right if it says two, as a word or a number.")
    page.get_by_label("Reason").fill("words count")
    checked(page, "item rubric, correcting")
    page.get_by_role("button", name="Save correction").click()
    expect(page.get_by_role("heading", name="own@2")).to_be_visible()
    expect(page.get_by_text("Corrected by curator")).to_be_visible()
    page.get_by_text("Approve", exact=True).first.click()
    page.get_by_label("Reason").fill("all read")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("own@2 is approved")).to_be_visible()
    checked(page, "item rubrics, approved")
    page.set_viewport_size(PHONE)
    checked(page, "item rubrics, phone")
    assert texts.find_missing() == []
    author = visitor(experiment.owner)
    author.goto("/experiments/pilot/item-rubrics/")
    author.get_by_role("button", name="Show cost").click()
    expect(author.get_by_role("button", name="Request rubrics")).to_be_visible()
    checked(author, "write item rubrics")
    expect(author).not_to_have_url(re.compile("csrf"))
    author.get_by_role("button", name="Request rubrics").click()
    expect(author.get_by_role("heading", name="pilot-rubrics@1")).to_be_visible()


def test_a_rubric_shows_its_versions_and_test_verdicts(visitor, checked, curator, experiment):
    turns = [{"role": "user", "content": "Judge fairly.\n{{input}}\n{{answer}}\n{{target}}"}]
    Rubric.objects.create(name="fair", messages=turns, status="approved")
    turns = [{"role": "user", "content": "Judge strictly.\n{{input}}\n{{answer}}\n{{target}}\n{{verdict_form}}"}]
    Rubric.objects.create(name="fair", version=2, messages=turns, scale_max=5)
    page = visitor(curator)
    page.goto("/library/rubrics/fair/?version=2")
    expect(page.get_by_role("deletion")).to_have_text(["1", "fairly"])
    expect(page.get_by_role("insertion")).to_have_text(["5", "strictly", "{{verdict_form}}"])
    checked(page, "rubric versions")
    owner = visitor(experiment.owner)
    owner.goto("/library/rubrics/fair/2/test/")
    owner.locator("#id_experiment").select_option(label="pilot")
    owner.locator("#id_model").select_option(label="small")
    owner.get_by_role("button", name="Test on five answers").click()
    expect(owner.get_by_text("Pending").first).to_be_visible()
    drain_in_thread(build_judge(score_answer))
    expect(owner.get_by_text("It leaves out the working.").first).to_be_visible()
    checked(owner, "a rubric tried")
