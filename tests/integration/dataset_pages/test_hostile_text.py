"""Keys, texts, categories, notes, names of files and columns that hold markup are shown as text on every page."""

import pytest
from django.urls import reverse

from datasets_app import curation
from datasets_app.importing import read_items
from datasets_app.importing.dataset_writer import create_dataset
from tests.factories.files import upload
from tests.integration.dataset_pages.conftest import item_act, of
from tests.integration.dataset_pages.test_uploading import choices, send

NASTY = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>{{ 7|add:7 }}{% now %}"
ESCAPED = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;"
MARKUP = ("<script>alert", "<img src=x", "'><img")


def row(**fields):
    import json

    return json.dumps(fields)


@pytest.fixture
def nasty(people):
    rows = [
        {"key": NASTY, "input": NASTY, "category": NASTY, "target": NASTY, "choices": [NASTY, "b"], NASTY: NASTY,
         "grading_scheme": NASTY, "metadata": {"items": NASTY}},
        {"key": "other", "input": "x", "category": NASTY},
    ]  # fmt: skip
    file = upload("\n".join(row(**fields) for fields in rows), f"{NASTY.replace('/', '')}.jsonl")
    dataset = create_dataset(
        read_items(file), slug="nasty", by=NASTY, title=NASTY, description=NASTY, source=NASTY, licence=NASTY
    )
    curation.exclude_items(dataset, [NASTY], by=NASTY, reason=NASTY)
    curation.include_items(dataset, [NASTY], by=NASTY, reason=NASTY)
    return dataset


def pages(dataset):
    item = dataset.items.first()
    return {
        "list": reverse("dataset_list"),
        "gallery": of(dataset),
        "table": of(dataset, "dataset_table"),
        "about": of(dataset, "dataset_about"),
        "edit": of(dataset, "dataset_edit"),
        "sample": of(dataset, "dataset_sample"),
        "norms": of(dataset, "dataset_norms"),
        "item": of(dataset, "item_detail", item.pk),
    }


def clean(text):
    return not [markup for markup in MARKUP if markup in text] and "{{ 14" not in text


def test_no_markup_of_others_reaches_a_page(nasty, as_):
    for name, address in pages(nasty).items():
        assert clean(as_("curator").get(address).content.decode()), name


@pytest.mark.parametrize("name", ["list", "gallery", "table", "about", "edit", "sample", "item"])
def test_the_text_itself_is_shown(nasty, as_, name):
    assert ESCAPED in as_("curator").get(pages(nasty)[name]).content.decode()


def test_a_note_and_its_message_are_text(nasty, as_):
    client = as_("researcher")
    item = nasty.items.first()
    response = client.post(item_act(item, "exclude"), {"reason": NASTY, "next": of(nasty)}, follow=True)
    text = response.content.decode()
    assert clean(text)
    assert f"Excluded: {ESCAPED}" in text
    for name, address in pages(nasty).items():
        assert clean(client.get(address).content.decode()), name


@pytest.mark.parametrize("name", ["gallery", "table"])
def test_a_filter_is_text_in_the_page_and_in_its_links(nasty, as_, name):
    text = as_("researcher").get(pages(nasty)[name], {"q": NASTY, "category": NASTY, "excluded": NASTY, "after": NASTY})
    assert clean(text.content.decode())


def test_a_category_with_markup_still_leads_to_its_items(nasty, as_):
    text = as_("researcher").get(of(nasty), {"category": NASTY}).content.decode()
    assert "2 of 2 match the filter" in text


@pytest.mark.slow
def test_the_preview_of_a_file_is_text(as_):
    client = as_("researcher")
    table = f'"{NASTY.replace(chr(34), chr(34) * 2)}",question\n"{NASTY.replace(chr(34), chr(34) * 2)}",What?\n'
    address = send(client, table, name="<b>items.csv").url
    text = client.get(address).content.decode()
    assert clean(text)
    assert "<b>items" not in text
    assert ESCAPED in text
    response = client.post(address, choices(client, address, expression_key=NASTY + "x"), follow=True)
    assert response.status_code == 200
    assert clean(response.content.decode())


def test_a_report_of_errors_is_text(as_):
    client = as_("researcher")
    twice = NASTY.replace('"', '""')
    address = send(client, f'id,question\n"{twice}",One?\n"{twice}",Two?\n').url
    text = client.post(address, choices(client, address), follow=True).content.decode()
    assert "Nothing was saved" in text
    assert clean(text)


def test_no_page_needs_inline_script_or_style(nasty, as_):
    for name, address in pages(nasty).items():
        response = as_("curator").get(address)
        assert "unsafe-inline" not in response["Content-Security-Policy"], name
        text = response.content.decode()
        assert ' style="' not in text, name
        assert " onclick" not in text, name
