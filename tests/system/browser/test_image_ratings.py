"""Raters rate twenty images on a phone, by touch and by keyboard, and the owner reviews the results."""

import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from datasets_app.models import Asset
from grading_app.grading.rating import queue_results, session
from grading_app.models import Rating
from tests import factories
from tests.factories.queues import make_queue, make_rater, rate_all
from tests.system.browser.page_checks import IDS, LAPTOP, PHONE, VIEWS, press_and_wait, wait_for_images

PHOTOGRAPHS = sorted((Path(__file__).parents[3] / "samples" / "photographs").glob("*.jpg"))[:20]
VALENCE = {"1": "Very negative", "4": "Neutral", "7": "Very positive"}
TOUCH = {"has_touch": True, "is_mobile": True}


def make_photograph(path):
    with Image.open(path) as image:
        width, height = image.size
    name = sha256(path.read_bytes()).hexdigest()
    asset = Asset.objects.create(sha256=name, format="jpeg", width=width, height=height, size=path.stat().st_size)
    for place in (asset.file, asset.shared_thumbnail.path):
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    return asset


def make_photograph_queue(owner, labels):
    items = [{"key": path.stem, "category": "photograph", "image": make_photograph(path)} for path in PHOTOGRAPHS]
    dimension = factories.make_dimension(
        "valence", labels=labels, instructions="How negative or positive does this picture make you feel?"
    )
    return make_queue(
        "first-impressions", owner=owner, dataset=factories.make_dataset("photographs", items), dimensions=[dimension],
        title="First impressions of photographs",
        instructions="Twenty photographs, one at a time.\n\nGo by your first feeling; nothing is right or wrong.",
    )  # fmt: skip


@pytest.fixture
def queue(owner):
    return make_photograph_queue(owner, VALENCE)


def expect_progress(page, done):
    expect(page.locator(".rating-progress span")).to_have_text(f"{done} of 20", use_inner_text=True)
    page.wait_for_load_state("load")  # A key has no effect before the script is loaded.


def test_twenty_images_are_rated_by_touch_on_a_phone(visitor, queue):
    rater = make_rater(queue)
    page = visitor(rater.user, PHONE, **TOUCH)
    page.goto("/")
    page.get_by_role("button", name="Start").tap()
    for done in range(20):
        expect_progress(page, done)
        wait_for_images(page)
        page.locator(f"button[value='{1 + done % 7}']").tap()
    page.get_by_role("heading", name="Thank you").wait_for()
    assert [rating.value for rating in rater.ratings.order_by("position")] == [1 + done % 7 for done in range(20)]


def test_twenty_images_are_rated_and_corrected_by_keyboard(visitor, queue):
    rater = make_rater(queue)
    page = visitor(rater.user, PHONE)
    page.goto("/ratings/first-impressions/")
    page.get_by_role("button", name="Start").click()
    for done in range(20):
        expect_progress(page, done)
        if done in (3, 11):
            press_and_wait(page, "u" if done == 3 else "Backspace")
            expect_progress(page, done - 1)
            press_and_wait(page, "7")
            expect_progress(page, done)
        press_and_wait(page, "3")
    page.get_by_role("heading", name="Thank you").wait_for()
    values = list(rater.ratings.order_by("position").values_list("value", "revisions"))
    assert values == [(7, 1) if done in (2, 10) else (3, 0) for done in range(20)]


def test_a_rater_continues_after_closing_the_browser(visitor, queue):
    """Somebody by a link, who has no password: after closing the browser only cookies with a date are left."""
    (token,) = queue.invite(1, by=queue.owner)
    page = visitor(None, PHONE, **TOUCH)
    page.goto(f"/ratings/join/{token}/")
    page.get_by_role("button", name="Take part").tap()
    page.get_by_role("button", name="Start").tap()
    for done in range(3):
        expect_progress(page, done)
        page.locator("button[value='6']").tap()
    expect_progress(page, 3)
    image = page.locator(".rating-image").get_attribute("src")
    state = page.context.storage_state()
    page.context.close()
    state["cookies"] = [cookie for cookie in state["cookies"] if cookie["expires"] > 0]
    later_page = visitor(None, PHONE, storage_state=state, **TOUCH)
    later_page.goto("/")
    expect_progress(later_page, 3)
    expect(later_page.locator(".rating-image")).to_have_attribute("src", image)


def test_the_image_fills_at_least_half_of_the_window(visitor, queue):
    """The image fills at least half of the space between the bars, and the width of a phone."""
    rater = make_rater(queue, started=True)
    for viewport in (LAPTOP, PHONE):
        page = visitor(rater.user, viewport)
        page.goto("/ratings/first-impressions/")
        stage = page.locator(".rating-stage").bounding_box()
        assert stage["height"] >= 0.4 * viewport["height"]
        assert stage["width"] >= 0.7 * viewport["width"]
        assert page.locator(".rating-point").last.bounding_box()["y"] < viewport["height"]


@pytest.mark.parametrize("labels", [VALENCE, {str(point): f"Point {point}" for point in range(1, 8)}])
def test_no_part_of_the_image_is_cut_off(visitor, owner, labels):
    """A scale whose points all have labels takes most of a phone, so its image is small."""
    rater = make_rater(make_photograph_queue(owner, labels), started=True)
    for viewport in (LAPTOP, PHONE, {"width": 360, "height": 640}, {"width": 844, "height": 390}):
        page = visitor(rater.user, viewport)
        page.goto("/ratings/first-impressions/")
        wait_for_images(page)
        stage = page.locator(".rating-stage").bounding_box()
        image = page.locator(".rating-image").bounding_box()
        assert image["y"] >= stage["y"]
        assert image["y"] + image["height"] <= stage["y"] + stage["height"]
        assert image["height"] >= 0.9 * stage["height"]


def test_keys_outside_the_scale_do_nothing(visitor, queue):
    rater = make_rater(queue, started=True)
    page = visitor(rater.user)
    page.goto("/ratings/first-impressions/")
    for key in ("8", "0", "9", "a", "u", "Backspace"):
        page.keyboard.press(key)
    page.reload()
    expect_progress(page, 0)
    assert not Rating.objects.given().exists()
    press_and_wait(page, "7")  # A key of the scale.
    expect_progress(page, 1)


def test_rating_works_without_scripts(visitor, queue):
    rater = make_rater(queue)
    page = visitor(rater.user, PHONE, java_script_enabled=False)
    page.goto("/ratings/first-impressions/")
    page.get_by_role("button", name="Start").click()
    for done, value in enumerate((5, 6)):
        expect_progress(page, done)
        page.locator(f"button[value='{value}']").click()
    expect_progress(page, 2)
    page.get_by_role("button", name="Undo").click()
    expect_progress(page, 1)
    assert [rating.value for rating in rater.ratings.given()] == [5]


def test_the_scale_fits_the_phone_window_without_scrolling(visitor, queue):
    rater = make_rater(queue, started=True)
    page = visitor(rater.user, PHONE, **TOUCH)
    page.goto("/ratings/first-impressions/")
    for button in page.locator(".rating-point").all():
        box = button.bounding_box()
        assert min(box["width"], box["height"]) >= 44
        assert box["y"] + box["height"] <= PHONE["height"]


def test_an_invited_person_rates_by_link(visitor, queue):
    (token,) = queue.invite(1, by=queue.owner)
    page = visitor(None, PHONE, **TOUCH)
    page.goto(f"/ratings/join/{token}/")
    page.get_by_role("button", name="Take part").tap()
    page.get_by_role("button", name="Start").tap()
    page.locator("button[value='4']").tap()
    expect_progress(page, 1)
    assert queue.assignments.get().ratings.given().count() == 1


def test_a_queue_is_created_opened_and_reviewed_in_the_browser(visitor, queue, owner):
    page = visitor(owner)
    page.goto("/ratings/queues/new/")
    page.get_by_label("Title").fill("How lively?")
    page.get_by_label("Name").fill("liveliness")
    page.get_by_label("Instructions").fill("Go by your first feeling.")
    page.get_by_label("Dataset", exact=True).select_option("photographs@1")
    page.get_by_label("valence@1").check()
    page.get_by_role("button", name="Save draft").click()
    page.locator("summary", has_text="Open").click()
    page.locator("details[open] button", has_text="Open").click()
    expect(page.get_by_text("liveliness is open")).to_be_visible()
    page.get_by_label("Number of links").fill("2")
    page.get_by_role("button", name="Create links").click()
    expect(page.locator("#links")).to_contain_text("/ratings/join/")
    assert page.locator("#links").inner_text().count("/ratings/join/") == 2


def test_every_rating_page_looks_right(visitor, checked_in_all_views, picture, queue, owner):
    new_rater = make_rater(queue, "new-rater")
    active_rater = make_rater(queue, started=True)
    for position in range(1, 8):
        session.rate(active_rater, position=position, value=4, seconds=2)
    finished_rater = make_rater(queue, started=True)
    rate_all(finished_rater, value=lambda due: 1 + (due.item_id * 5) % 7)
    rate_all(make_rater(queue, started=True), value=lambda due: 1 + (due.item_id * 5 + due.position % 2) % 7)
    for rater, name in ((new_rater, "welcome"), (active_rater, "item"), (finished_rater, "thanks")):
        page = visitor(rater.user)
        page.goto("/ratings/first-impressions/")
        checked_in_all_views(page, f"rating {name}")
        if name == "item":
            picture(page, "rating/item")
    assert queue_results.list_question_results(queue)[0].alpha.estimate
    page = visitor(owner)
    for name, address in (("list", ""), ("new", "new/"), ("detail", "first-impressions/")):
        page.goto(f"/ratings/queues/{address}")
        checked_in_all_views(page, f"rating queue {name}")


NINE = (
    "Extremely negative,Very negative,Negative,Slightly negative,Neither,"
    "Slightly positive,Positive,Very positive,Extremely positive"
)


@pytest.mark.parametrize(("viewport", "scheme"), [VIEWS[1], VIEWS[2]], ids=[IDS[1], IDS[2]])
def test_a_text_on_a_long_scale_with_all_its_labels_looks_right(visitor, checked, owner, viewport, scheme):
    labels = {str(number): label for number, label in enumerate(NINE.split(","), start=1)}
    dimension = factories.make_dimension("tone", high=9, labels=labels, title="How does this message sound?")
    text = "Thank you for your letter of the third. We regret that the position has been filled meanwhile. " * 6
    dataset = factories.make_dataset("letters", [{"key": f"letter-{number}", "input": text} for number in range(4)])
    queue = make_queue("letters", owner=owner, dataset=dataset, dimensions=[dimension], practice_items=1)
    page = visitor(make_rater(queue, started=True).user, viewport, color_scheme=scheme)
    page.goto("/ratings/letters/")
    press_and_wait(page, "9")
    page.get_by_text("1 of 4").wait_for()
    page.get_by_text("Instructions").click()
    checked(page, f"rating text {'phone' if viewport is PHONE else 'laptop'}-{scheme}")
