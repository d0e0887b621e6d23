"""Two people rate answers, by touch and by keyboard, and are compared with a judge on the agreement page."""

import re

import pytest
from playwright.sync_api import expect

from grading_app.models import Adjudication, Grading, Rating, Rubric
from grading_app.results.statistic_format import format_coefficient, format_number
from grading_app.statistics.agreement_coefficients import cohens_kappa, krippendorff_alpha, percent_agreement
from grading_app.statistics.intraclass import intraclass_correlation
from grading_app.statistics.judge_bias import judge_bias
from grading_app.statistics.ratings import Ratings
from tests import factories
from tests.factories.gradings import APPLE_ITEMS, make_apple_answers, make_gradings, make_scale_rubric
from tests.factories.queues import make_answer_queue, make_rater, rate_all
from tests.system.browser.answer_pages import TOUCH, open_measures, read_apples_left, read_row
from tests.system.browser.page_checks import PHONE, press_and_wait, wait_for_images

POINTS = {"1": "Wrong", "3": "Partly right", "5": "Right"}


@pytest.fixture
def study(owner):
    """Answers of two models to five questions, all graded by a judge that is more lenient than the raters."""
    experiment = make_apple_answers(owner)
    rubric = make_scale_rubric("steps", low=1, high=5)
    make_gradings(experiment, "judge-a", lambda trial: 1 + (trial.item.position + 1) % 5, rubric=rubric,
           reasoning="The boxes are counted, and the half empty one is counted as full.")  # fmt: skip
    return experiment


@pytest.fixture
def queue(study):
    goodness = factories.make_dimension(
        "goodness", title="How good is this answer?", instructions="Read the question first.", low=1, high=5,
        labels=POINTS,
    )  # fmt: skip
    return make_answer_queue(
        "reading", experiment=study, dimensions=[goodness], title="Answers about apples", raters_wanted=3
    )


def choose_rating(page):
    """Return the rating of this rater for the shown answer, read from the page."""
    return 1 + read_apples_left(page) % 5


def wait_for_progress(page, done):
    page.wait_for_function("text => document.querySelector('.rating-progress span')?.innerText === text",
                           arg=f"{done} of {2 * APPLE_ITEMS}")  # fmt: skip


def rate_by_touch(visitor, rater):
    page = visitor(rater.user, PHONE, **TOUCH)
    page.goto("/ratings/reading/")
    page.get_by_role("button", name="Start").tap()
    for done in range(2 * APPLE_ITEMS):
        wait_for_progress(page, done)
        page.locator(f"button[value='{choose_rating(page)}']").tap()
    page.get_by_role("heading", name="Thank you").wait_for()


def rate_by_keys(visitor, rater):
    page = visitor(rater.user)
    page.goto("/ratings/reading/")
    page.get_by_role("button", name="Start").click()
    for done in range(2 * APPLE_ITEMS):
        wait_for_progress(page, done)
        press_and_wait(page, str(max(1, choose_rating(page) - done % 2)))
    page.get_by_role("heading", name="Thank you").wait_for()


def load_stored_ratings():
    """Return the stored ratings of people and the judge, and the item of each answer. The judge is rater `judge`."""
    people = [(row.trial_id, row.assignment_id, row.value) for row in Rating.objects.counted()]
    gradings = Grading.objects.select_related("trial")
    items = {row.trial_id: row.trial.item_id for row in gradings}
    return Ratings.from_triples([*people, *((row.trial_id, "judge", row.score) for row in gradings)]), items


def check_numbers(page):
    """Assert that the page shows the measures computed from the stored rows."""
    ratings, items = load_stored_ratings()
    expected = {
        "Percent agreement": percent_agreement(ratings),
        "Krippendorff's alpha, ordinal": krippendorff_alpha(ratings, "ordinal"),
        "ICC(2,1)": intraclass_correlation(ratings, "2,1"),
    }
    for name, measure in expected.items():
        assert read_row(page, "measures", name)[1] == format_coefficient(measure.estimate)
    assert 0 < expected["Krippendorff's alpha, ordinal"].estimate < 1
    assert read_row(page, "against", "Bias")[1] == format_number(judge_bias(ratings, "judge", items).estimate)
    first, second = (rater for rater in ratings.raters if rater != "judge")
    both = cohens_kappa(ratings.select_raters(first, second), "quadratic")
    pairs = page.get_by_role("region", name="Pairs of raters").locator("tbody tr")
    between_people = pairs.filter(has_text="rater 1").filter(has_text="rater 2").locator("td").all_inner_texts()
    assert between_people[4].strip() == format_coefficient(both.estimate)


def test_two_raters_and_a_judge_appear_on_the_agreement_page(visitor, queue, owner):
    rate_by_touch(visitor, make_rater(queue))
    rate_by_keys(visitor, make_rater(queue))
    page = visitor(owner)
    page.goto("/experiments/apples/agreement/")
    open_measures(page, units=2 * APPLE_ITEMS, raters=3)
    for name in ("judge-a", "rater 1", "rater 2"):
        expect(page.get_by_role("cell", name=name).first).to_be_visible()
    expect(page.get_by_role("heading", name="against people")).to_be_visible()
    check_numbers(page)
    page.locator("summary").filter(has_text="Krippendorff's alpha, ordinal").click()
    expect(page.get_by_text("distances by the ranks between them")).to_be_visible()
    wait_for_images(page)
    page.get_by_label("rater 1").or_(page.get_by_label("people of reading")).first.uncheck()
    page.get_by_role("button", name="Compare raters").click()
    expect(page.get_by_text("Only one rater")).to_be_visible()
    expect(page).to_have_url(re.compile("rater=g"))


def test_a_disagreement_is_decided_by_keyboard(visitor, queue, owner):
    make_gradings(
        queue.experiment,
        "judge-b-harsh",
        lambda trial: 1.0 + trial.item.position % 2,
        rubric=Rubric.objects.get(),
        reasoning="No unit is given.",
    )
    page = visitor(owner)
    page.goto("/experiments/apples/disagreements/")
    page.keyboard.press("j")
    press_and_wait(page, "Enter")
    page.get_by_text("Disagreement 1 of").wait_for()
    expect(page.get_by_text("No unit is given.")).to_be_visible()
    first = page.url
    press_and_wait(page, "]")
    page.get_by_text("Disagreement 2 of").wait_for()
    press_and_wait(page, "[")
    expect(page).to_have_url(first)
    page.keyboard.press("s")
    page.keyboard.type("4")
    page.get_by_label("Reason").fill("The sum is right, the unit is missing.")
    page.get_by_role("button", name="Save decision").click()
    page.get_by_text("Decision saved: 4.").wait_for()
    adjudication = Adjudication.objects.get()
    assert (adjudication.score, adjudication.by) == (4, owner)
    assert f"/disagreements/{Grading.objects.get(condition__kind='adjudicated').trial_id}/" in first


def test_every_agreement_page_looks_right(visitor, checked_in_all_views, queue, owner):
    make_gradings(
        queue.experiment, "judge-b", lambda trial: 1 + (trial.item.position * 3) % 5, rubric=Rubric.objects.get()
    )
    new = make_rater(queue, started=True)
    rate_by_two_raters(queue)
    page = visitor(new.user)
    page.goto("/ratings/reading/")
    checked_in_all_views(page, "rating answer")
    page = visitor(owner)
    for name, address in (
        ("agreement", "/experiments/apples/agreement/"),
        ("disagreements", "/experiments/apples/disagreements/"),
        ("queue of answers", "/ratings/queues/reading/"),
        ("new queue of answers", "/experiments/apples/ratings/new/"),
    ):
        page.goto(address)
        checked_in_all_views(page, name)
    page.goto("/experiments/apples/disagreements/")
    page.locator("[data-rows] tbody a").first.click()
    page.get_by_text("Disagreement 1 of").wait_for()
    checked_in_all_views(page, "disagreement")


def rate_by_two_raters(queue):
    for offset in (0, 1):
        rater = make_rater(queue, started=True)
        rate_all(rater, lambda due, offset=offset: max(1, 1 + due.item.position % 5 - offset * (due.position % 2)))
