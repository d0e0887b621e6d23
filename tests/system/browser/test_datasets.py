"""Curation in a browser: the shipped photographs, from upload to frozen sample."""

import io
import re
import zipfile
from pathlib import Path

import pytest
from django.conf import settings
from django.urls import reverse
from playwright.sync_api import expect

from datasets_app.importing import read_items, read_norms
from datasets_app.importing.dataset_writer import create_dataset
from datasets_app.models import Dataset
from evalsite.lib import permissions
from tests import factories
from tests.integration.dataset_pages.conftest import run_task_now
from tests.system.browser.page_checks import LAPTOP, PHONE, press_and_wait, wait_for_images

SAMPLES = Path(settings.BASE_DIR) / "samples"


@pytest.fixture(autouse=True)
def immediate_worker(monkeypatch):
    """Run each task immediately when it is queued."""
    monkeypatch.setattr("django_q.tasks.async_task", run_task_now)


@pytest.fixture
def curator(transactional_db):
    return factories.make_user("curator", permissions.CURATOR)


@pytest.fixture
def photographs_zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted((SAMPLES / "photographs").iterdir()):
            archive.write(path, f"photographs/{path.name}")
    return {"name": "photographs.zip", "mimeType": "application/zip", "buffer": buffer.getvalue()}


@pytest.fixture
def photographs(transactional_db):
    reading = read_items(SAMPLES / "photographs.csv", images=SAMPLES / "photographs")
    norms = read_norms(SAMPLES / "norms.csv", {item.key: item.category for item in reading.items})
    return create_dataset(
        reading, slug="photographs", by="command line", norms=norms.norms, title="Thirty-two photographs to try out",
        source="scikit-image and SciPy sample images, see samples/SOURCES.md", licence="CC0 and public domain",
    )  # fmt: skip


def upload_photographs(page, images):
    page.goto(reverse("dataset_new"))
    page.get_by_label("Items").set_input_files(SAMPLES / "photographs.csv")
    page.get_by_label("Images").set_input_files(images)
    page.get_by_label("Human norms").set_input_files(SAMPLES / "norms.csv")
    page.get_by_label("Name").fill("photographs")
    page.get_by_label("Title").fill("Thirty-two photographs")
    page.get_by_role("button", name="Upload and map columns").click()


def test_an_upload_becomes_a_frozen_sample(curator, visitor, checked, photographs_zip):
    page = visitor(curator)
    upload_photographs(page, photographs_zip)
    expect(page.get_by_label("Image: Column")).to_have_value("1")
    checked(page, "datasets-mapping-1280-light")
    page.get_by_role("button", name="Import items").click()
    expect(page.locator(".card-item")).to_have_count(32)
    expect(page.get_by_text("photographs@1 is a draft of 32 items.")).to_be_visible()
    wait_for_images(page)
    page.wait_for_load_state("load")
    exclude_second_item_by_keyboard(page)
    sample_twelve(page)
    approve(page)
    checked(page, "datasets-frozen-1280-light")
    sample = Dataset.objects.get(slug="twelve")
    assert (sample.status, sample.active_count, len(sample.content_hash)) == ("approved", 12, 64)


def exclude_second_item_by_keyboard(page):
    page.keyboard.press("j")
    page.keyboard.press("ArrowRight")
    second = page.locator(".card-item").nth(1)
    key = second.locator("[data-item]").inner_text()
    page.keyboard.press("x")
    expect(page.get_by_role("heading", name=f"Exclude {key}?")).to_be_visible()
    page.keyboard.type("Too dark to make out")
    page.keyboard.press("Enter")
    expect(second.get_by_text("Excluded: Too dark to make out")).to_be_visible()
    expect(page.locator("#summary")).to_contain_text("31 active, 1 excluded")
    expect(second.locator("[data-item]")).to_be_focused()
    expect(page).to_have_url(re.compile(r"/datasets/photographs/1/$"))


def sample_twelve(page):
    page.get_by_role("link", name="Sample").click()
    page.get_by_label("Name of the new draft").fill("twelve")
    page.get_by_label("Uniform").check()
    page.get_by_label("Items", exact=True).fill("10")
    page.get_by_label("Seed").fill("7")
    page.get_by_role("button", name="Draw sample").click()
    expect(page.locator(".error-summary")).to_contain_text("10 is not a multiple of the number of categories")
    page.get_by_label("Stratified").check()
    page.get_by_label("Items", exact=True).fill("12")
    page.get_by_role("button", name="Draw sample").click()
    expect(page.locator(".card-item")).to_have_count(12)
    expect(page.locator("#summary")).to_contain_text("Stratified, 12 items, seed 7")


def approve(page):
    page.locator("summary", has_text="Approve").click()
    page.get_by_label("Reason").locator("visible=true").fill("Balanced, and looked through")
    page.get_by_role("button", name="Approve and freeze").click()
    expect(page.locator("h1")).to_contain_text("Approved")
    expect(page.locator(".card-tool")).to_have_count(0)
    expect(page.get_by_role("link", name="More")).to_have_count(0)
    expect(page.locator("summary", has_text="Duplicate")).to_be_visible()
    page.wait_for_load_state("load")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("dialog[open]")).to_have_count(0)


def test_an_item_is_excluded_and_included_on_its_own_page_without_a_script(curator, visitor, photographs):
    page = visitor(curator, java_script_enabled=False)
    item = photographs.items.first()
    page.goto(reverse("item_detail", args=["photographs", 1, item.pk]))
    page.locator("#note").get_by_label("Note").fill("Blurred")
    page.get_by_role("button", name="Exclude").click()
    expect(page.locator(".notice", has_text="Excluded: Blurred")).to_be_visible()
    item.refresh_from_db()
    assert (item.excluded, item.note) == (True, "Blurred")
    page.get_by_role("button", name="Include").click()
    expect(page.locator(".notice", has_text="Excluded: Blurred")).to_have_count(0)
    item.refresh_from_db()
    assert not item.excluded


def test_the_keyboard_moves_through_filtered_items(curator, visitor, photographs):
    page = visitor(curator)
    animals = list(photographs.items.filter(category="Animal"))
    page.goto(reverse("item_detail", args=["photographs", 1, animals[0].pk]) + "?category=Animal")
    for key, item in (("ArrowRight", animals[1]), ("j", animals[2]), ("k", animals[1])):
        press_and_wait(page, key)
        expect(page.locator("h1")).to_contain_text(item.key)
    expect(page).to_have_url(re.compile(r"\?category=Animal$"))
    page.keyboard.press("x")
    expect(page.locator("#note").get_by_label("Note")).to_be_focused()


def test_table_rows_are_excluded_and_included_by_keyboard(curator, visitor, photographs):
    page = visitor(curator)
    page.goto(reverse("dataset_table", args=["photographs", 1]) + "?category=Scene&excluded=false")
    before = page.locator("tbody tr").count()
    for _ in range(2):
        page.keyboard.press("j")
    key = page.locator("tbody tr").nth(1).locator("[data-item]").inner_text()
    page.keyboard.press("x")
    page.keyboard.type("Two of a kind")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(before - 1)  # The filter shows active items only.
    assert list(photographs.items.filter(excluded=True).values_list("key", "note")) == [(key, "Two of a kind")]
    expect(page.locator("tbody tr").nth(1).locator("[data-item]")).to_be_focused()
    page.goto(reverse("dataset_table", args=["photographs", 1]) + "?excluded=true")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No item matches this filter")).to_be_visible()
    assert not photographs.items.filter(excluded=True).exists()


def test_a_question_of_two_lines_and_its_target_are_not_cut_in_the_list_of_items(curator, visitor):
    question = (
        "A recipe for 6 people needs 450 g of flour. How many grams does it need for 10 people, if all eat as much?"
    )
    target = "750 grams, or three quarters of a kilo"
    factories.make_dataset(
        "recipes", [{"key": "recipe-07", "category": "Arithmetic", "input": question, "target": target}]
    )
    page = visitor(curator)
    page.goto(reverse("dataset_table", args=["recipes", 1]))
    for text in (question, target):
        cell = page.locator("td span", has_text=text).last
        expect(cell).to_be_visible()
        assert not cell.evaluate(
            "text => text.scrollHeight > text.clientHeight + 1 || text.scrollWidth > text.clientWidth"
        )


def test_the_dialog_closes_without_a_note(curator, visitor, photographs):
    page = visitor(curator)
    page.goto(photographs.get_absolute_url())
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("Enter")  # The browser requires the note.
    expect(page.locator("#note-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#note-dialog")).to_be_hidden()
    expect(page.locator("[data-item]").first).to_be_focused()
    assert not photographs.items.filter(excluded=True).exists()


def test_an_import_continues_by_itself_and_shows_the_name_and_long_cells(curator, visitor, checked, monkeypatch):
    queued = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda function, *args, **options: queued.append((function, args)))
    page = visitor(curator)
    page.goto(reverse("dataset_new"))
    long_text = "A long question with many words in it. " * 30
    table = f'id,question\nq1,"{long_text}"\nq2,Short?\n'
    page.get_by_label("Items").set_input_files({"name": "long.csv", "mimeType": "text/csv", "buffer": table.encode()})
    page.get_by_label("Name").fill("My Long Questions")
    expect(page.locator(".slug-shown")).to_have_text("Stored as my-long-questions")
    page.get_by_role("button", name="Upload and map columns").click()
    expect(page.get_by_text("Waiting for a worker")).to_be_visible()
    checked(page, "datasets-reading-1280-light")
    (function, args), *_ = queued
    run_task_now(function, *args)
    expect(page.get_by_role("heading", name="First rows")).to_be_visible()
    cell = page.locator(".preview-fold").first
    start = cell.locator(".preview-start")
    line = start.evaluate("node => parseFloat(getComputedStyle(node).lineHeight)")
    assert abs(start.evaluate("node => node.clientHeight") - 4 * line) < 2, "cut between lines, not within one"
    cell.locator("summary").click()
    expect(cell.locator(".preview-all")).to_have_text(long_text.strip())
    checked(page, "datasets-preview-1280-light")


def list_addresses(dataset, sample):
    item = dataset.items.get(key="raccoon")
    excluded = dataset.items.get(excluded=True)
    question = Dataset.objects.get(slug="questions").items.last()
    key = [dataset.slug, dataset.version]
    return {
        "list": reverse("dataset_list"),
        "new": reverse("dataset_new"),
        "gallery": dataset.get_absolute_url(),
        "gallery category": f"{dataset.get_absolute_url()}?category=Scene",
        "gallery nothing": f"{dataset.get_absolute_url()}?q=nowhere",
        "table": reverse("dataset_table", args=key),
        "about": reverse("dataset_about", args=key),
        "about sample": reverse("dataset_about", args=[sample.slug, sample.version]),
        "item": reverse("item_detail", args=[*key, item.pk]),
        "item excluded": reverse("item_detail", args=[*key, excluded.pk]),
        "sample": reverse("dataset_sample", args=key),
        "edit": reverse("dataset_edit", args=key),
        "norms": reverse("dataset_norms", args=key),
        "questions": reverse("dataset_detail", args=["questions", 1]),
        "questions table": reverse("dataset_table", args=["questions", 1]),
        "question": reverse("item_detail", args=["questions", 1, question.pk]),
    }


@pytest.fixture
def dataset_and_sample(photographs, curator):
    from datasets_app import curation

    photographs.exclude_items(["cat-eyes"], by=curator, reason="Shows the same cat as cat-face")
    sample = curation.sample_dataset(photographs, slug="twelve", strategy="stratified", n=12, seed=7, by=curator)
    questions = create_dataset(
        read_items(SAMPLES / "questions.jsonl"), slug="questions", by=curator, title="Questions in four fields",
        source="Written for this project", licence="CC0",
    )  # fmt: skip
    questions.approve(by=curator, reason="Checked against the answers by two people")
    return photographs, sample


def test_every_dataset_page_looks_right(dataset_and_sample, curator, visitor, checked_in_all_views):
    page = visitor(curator)
    for name, address in list_addresses(*dataset_and_sample).items():
        page.goto(address)
        checked_in_all_views(page, f"datasets-{name}")


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_an_invalid_file_is_reported_row_by_row(curator, visitor, checked, viewport):
    page = visitor(curator, viewport)
    table = "id,question,answer,topic\nq1,One?,1,a\nq1,Two?,2,a\n,Three?,3,b\nq4,,4,b\n"
    page.goto(reverse("dataset_new"))
    file = {"name": "broken.csv", "mimeType": "text/csv", "buffer": table.encode()}
    page.get_by_label("Items").set_input_files(file)
    page.get_by_label("Name").fill("broken")
    page.get_by_role("button", name="Upload and map columns").click()
    page.get_by_role("button", name="Import items").click()
    expect(page.get_by_text("Nothing was saved.")).to_be_visible()
    expect(page.get_by_text(re.compile("is the key of row 1 already"))).to_be_visible()
    expect(
        page.locator("tbody tr", has_text="Error").or_(page.locator("tbody tr svg[aria-label=Error]"))
    ).to_have_count(3)
    checked(page, f"datasets-errors-{viewport['width']}-light")
    assert not Dataset.objects.exists()


@pytest.mark.parametrize(("viewport", "scheme"), [(LAPTOP, "light"), (PHONE, "dark")], ids=["laptop", "phone"])
def test_popups_and_dialogs_look_right(dataset_and_sample, curator, visitor, checked, viewport, scheme):
    page = visitor(curator, viewport, color_scheme=scheme)
    page.goto(dataset_and_sample[1].get_absolute_url())
    view = f"{viewport['width']}-{scheme}"
    page.locator("summary", has_text="Approve").click()
    expect(page.get_by_role("button", name="Approve and freeze")).to_be_visible()
    checked(page, f"datasets-approving-{view}")
    page.locator("summary", has_text="More").click()
    expect(page.get_by_role("link", name="Import norms")).to_be_visible()
    expect(page.get_by_role("button", name="Approve and freeze")).to_be_hidden()
    checked(page, f"datasets-more-{view}")
    page.keyboard.press("Escape")
    page.locator(".card-item").nth(2).hover()
    page.locator(".card-tool").nth(2).click()
    expect(page.locator("#note-reason")).to_be_focused()
    checked(page, f"datasets-excluding-{view}")


def test_import_warnings_remain_on_the_dataset_page(curator, visitor, checked):
    page = visitor(curator)
    table = "id,question,answer,topic,\n q1,One?,1,a,x\nq2,Two?,2,a,y\n"
    page.goto(reverse("dataset_new"))
    page.get_by_label("Items").set_input_files({"name": "slips.csv", "mimeType": "text/csv", "buffer": table.encode()})
    page.get_by_label("Name").fill("slips")
    page.get_by_role("button", name="Upload and map columns").click()
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_text("2 items can be imported")).to_be_visible()
    checked(page, "datasets-checked-1280-light")
    page.get_by_role("button", name="Import items").click()
    expect(page.get_by_text("2 warnings in slips.csv")).to_be_visible()
    checked(page, "datasets-warnings-1280-light")
