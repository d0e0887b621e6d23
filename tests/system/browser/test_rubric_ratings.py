"""People rate answers by the rubric of a judge, and are compared with the judge on the agreement page."""

import pytest
from playwright.sync_api import expect

from grading_app.grading.rating import session
from grading_app.models import Grading, Preference, Rubric
from grading_app.models.gradings import allow_superseding
from grading_app.results.statistic_format import format_coefficient
from grading_app.statistics.agreement_coefficients import krippendorff_alpha, percent_agreement
from grading_app.statistics.ratings import Ratings
from tests.factories.gradings import APPLE_ITEMS, make_apple_answers, make_gradings
from tests.factories.queues import make_answer_queue, make_rater, rate_all
from tests.system.browser.answer_pages import TOUCH, open_measures, read_apples_left, read_row
from tests.system.browser.page_checks import IDS, PHONE, VIEWS, press_and_wait

TURNS = (
    "You judge answers to questions. Say of each criterion whether the answer meets it:\n{{criteria}}\n{{verdict_form}}"
)
CRITERIA = [
    {"name": "correct", "description": "Agrees with the reference answer", "weight": 2},
    {"name": "complete", "description": "Says how the number was found"},
]
LABELS = [
    {"name": "right", "description": "Agrees with the reference answer", "score": 1},
    {"name": "partly", "description": "Right in part", "score": 0.5},
    {"name": "wrong", "description": "Disagrees, or answers something else", "score": 0},
]


@pytest.fixture
def study(owner):
    return make_apple_answers(owner)


def make_rubric_queue(study, kind, **fields):
    answers = "{{answer_a}}\n{{answer_b}}" if kind == "pairwise" else "Reference answer: {{target}}\n{{answer}}"
    rubric = Rubric.objects.create(
        name="strict", kind=kind, status="approved", **fields,
        messages=[{"role": "system", "content": TURNS}, {"role": "user", "content": f"{{{{input}}}}\n{answers}"}],
    )  # fmt: skip
    return make_answer_queue(
        "reading", experiment=study, dimensions=[], by=rubric, raters_wanted=3, title="Answers about apples"
    )


@pytest.fixture
def queue(study):
    """A queue with a rubric of criteria, and gradings of a judge by the same rubric."""
    made = make_rubric_queue(study, "criteria", criteria=CRITERIA)
    make_gradings(study, "judge-a", lambda trial: 1 - trial.item.position % 2 / 3, rubric=made.rubric)
    for grading in Grading.objects.select_related("trial__item"):
        even = grading.trial.item.position % 2 == 0
        with allow_superseding():
            Grading.objects.filter(pk=grading.pk).update(detail={"criteria": {"correct": True, "complete": even}})
    return made


def wait_for_progress(page, done, total):
    page.wait_for_function("text => document.querySelector('.rating-progress span')?.innerText === text",
                           arg=f"{done} of {total}")  # fmt: skip
    page.wait_for_load_state("load")  # A key has no effect before the script is loaded.


QUESTION_IS_WHOLE = """() => {
    const part = document.querySelector('[aria-label="Question"]');
    return innerHeight === 600 && part.scrollHeight <= part.clientHeight;
}"""


def is_pass(page, lenient):
    """Return whether this rater passes the shown criterion, read from the page."""
    return lenient or page.locator(".rating-question h1").inner_text() == "correct" or read_apples_left(page) > 2


def rate_by_keys(visitor, rater, *, lenient):
    page = visitor(rater.user)
    page.goto("/ratings/reading/")
    page.get_by_role("button", name="Start").click()
    for done in range(4 * APPLE_ITEMS):
        wait_for_progress(page, done, 4 * APPLE_ITEMS)
        if done == 3:  # Undo, then repeat the same rating.
            press_and_wait(page, "u")
            wait_for_progress(page, done - 1, 4 * APPLE_ITEMS)
            press_and_wait(page, "p" if is_pass(page, lenient) else "f")
            wait_for_progress(page, done, 4 * APPLE_ITEMS)
        press_and_wait(page, "p" if is_pass(page, lenient) else "F")
    page.get_by_role("heading", name="Thank you").wait_for()


def test_two_raters_and_a_judge_of_one_rubric_appear_on_the_agreement_page(visitor, queue, owner):
    """Each rater rates ten answers by keyboard. The page shows the measures computed from the stored rows."""
    for lenient in (True, False):
        rate_by_keys(visitor, make_rater(queue), lenient=lenient)
    assert Grading.objects.filter(condition__kind="person").count() == 2 * 2 * APPLE_ITEMS
    assert set(Grading.objects.filter(condition__kind="person").values_list("score", flat=True)) == {1, 2 / 3}
    page = visitor(owner)
    page.goto("/experiments/apples/agreement/")
    check_numbers(page, Grading.objects.values_list("trial", "condition", "score"))
    page.get_by_label("Unit").select_option(label="Answers, on complete of strict@1")
    page.get_by_role("button", name="Compare raters").click()
    page.wait_for_url("**units=criterion*")
    check_numbers(page, [(row.trial_id, row.condition_id, row.get_level("complete")) for row in Grading.objects.all()])


def check_numbers(page, triples):
    ratings = Ratings.from_triples(triples)
    open_measures(page, units=2 * APPLE_ITEMS, raters=3)
    for name in ("judge-a", "rater 1", "rater 2"):
        expect(page.get_by_role("cell", name=name).first).to_be_visible()
    expected = {
        "Percent agreement": percent_agreement(ratings),
        "Krippendorff's alpha, nominal": krippendorff_alpha(ratings, "nominal"),
    }
    for name, measure in expected.items():
        assert read_row(page, "measures", name)[1] == format_coefficient(measure.estimate)
    assert 0 < expected["Percent agreement"].estimate < 1


def test_arrow_keys_choose_an_answer_of_a_pair(visitor, study):
    queue = make_rubric_queue(study, "pairwise")
    rater = make_rater(queue, started=True)
    page = visitor(rater.user)
    page.goto("/ratings/reading/")
    for done, key in enumerate(["ArrowLeft", "ArrowRight", "n"]):
        wait_for_progress(page, done, APPLE_ITEMS)
        assert page.get_by_role("region", name="Answer A").bounding_box()["x"] < 640
        assert page.get_by_role("region", name="Answer B").bounding_box()["x"] >= 640
        press_and_wait(page, key)
    page.set_viewport_size({"width": 1280, "height": 600})
    page.wait_for_function(QUESTION_IS_WHOLE)
    page.get_by_role("region", name="Answer A").focus()
    page.keyboard.press("ArrowRight")  # Scrolls a long answer and does not rate it.
    page.reload()
    wait_for_progress(page, 3, APPLE_ITEMS)
    assert list(Preference.objects.order_by("pk").values_list("winner", flat=True)) == ["a", "b", "tie"]


def test_a_criterion_fits_the_phone_window_without_scrolling(visitor, queue):
    rater = make_rater(queue, started=True)
    page = visitor(rater.user, PHONE, **TOUCH)
    page.goto("/ratings/reading/")
    for button in page.locator(".rating-point").all():
        box = button.bounding_box()
        assert min(box["width"], box["height"]) >= 44
        assert box["y"] + box["height"] <= PHONE["height"]
    page.get_by_role("button", name="Fail").tap()
    wait_for_progress(page, 1, 4 * APPLE_ITEMS)
    assert rater.ratings.given().get().value == 0


FIELDS = {"criteria": {"criteria": CRITERIA}, "label": {"labels": LABELS}, "pairwise": {}, "score": {"scale_max": 1}}


@pytest.mark.parametrize(("viewport", "scheme"), VIEWS, ids=IDS)
def test_every_rubric_rating_page_looks_right(visitor, checked, study, owner, viewport, scheme):
    device = f"{'phone' if viewport is PHONE else 'laptop'}-{scheme}"
    kind = dict(zip(IDS, FIELDS, strict=True))[device]
    queue = make_rubric_queue(study, kind, **FIELDS[kind])
    new_rater, active_rater = make_rater(queue), make_rater(queue, started=True)
    rate_all(make_rater(queue, started=True), 1)
    session.rate(active_rater, position=1, value=1, seconds=2)
    for rater, name in ((new_rater, "welcome"), (active_rater, kind)):
        page = visitor(rater.user, viewport, color_scheme=scheme)
        page.goto("/ratings/reading/")
        checked(page, f"rubric {name} {device}")
    page = visitor(owner, viewport, color_scheme=scheme)
    for name, address in (("queue", "/ratings/queues/reading/"), ("new queue", "/experiments/apples/ratings/new/")):
        page.goto(address)
        checked(page, f"rubric {name} {device}")
