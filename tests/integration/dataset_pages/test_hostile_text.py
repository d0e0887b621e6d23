"""Markup in keys, texts, categories, notes and names of files and columns is shown as text on every page."""

import pytest
from django.urls import reverse

from datasets_app.importing import read_items
from datasets_app.importing.dataset_writer import create_dataset
from tests.factories.files import build_upload
from tests.integration.dataset_pages.conftest import build_address, build_item_action_address
from tests.integration.dataset_pages.test_uploading import build_choices, send

NASTY = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>{{ 7|add:7 }}{% now %}"
ESCAPED = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;"
MARKUP = ("<script>alert", "<img src=x", "'><img")


def make_row(**fields):
    import json

    return json.dumps(fields)


@pytest.fixture
def nasty_dataset(people):
    rows = [
        {"key": NASTY, "input": NASTY, "category": NASTY, "target": NASTY, "choices": [NASTY, "b"], NASTY: NASTY,
         "grading_scheme": NASTY, "metadata": {"items": NASTY}},
        {"key": "other", "input": "x", "category": NASTY},
    ]  # fmt: skip
    file = build_upload("\n".join(make_row(**fields) for fields in rows), f"{NASTY.replace('/', '')}.jsonl")
    dataset = create_dataset(
        read_items(file), slug="nasty", by=NASTY, title=NASTY, description=NASTY, source=NASTY, licence=NASTY
    )
    dataset.exclude_items([NASTY], by=NASTY, reason=NASTY)
    dataset.include_items([NASTY], by=NASTY, reason=NASTY)
    return dataset


def build_addresses(dataset):
    item = dataset.items.first()
    return {
        "list": reverse("dataset_list"),
        "gallery": build_address(dataset),
        "table": build_address(dataset, "dataset_table"),
        "about": build_address(dataset, "dataset_about"),
        "edit": build_address(dataset, "dataset_edit"),
        "sample": build_address(dataset, "dataset_sample"),
        "norms": build_address(dataset, "dataset_norms"),
        "item": build_address(dataset, "item_detail", item.pk),
    }


def is_clean(text):
    return not [markup for markup in MARKUP if markup in text] and "{{ 14" not in text


def test_no_markup_of_others_reaches_a_page(nasty_dataset, as_):
    for name, address in build_addresses(nasty_dataset).items():
        assert is_clean(as_("curator").get(address).content.decode()), name


@pytest.mark.parametrize("name", ["list", "gallery", "table", "about", "edit", "sample", "item"])
def test_the_text_itself_is_shown(nasty_dataset, as_, name):
    assert ESCAPED in as_("curator").get(build_addresses(nasty_dataset)[name]).content.decode()


def test_a_note_and_its_message_are_text(nasty_dataset, as_):
    client = as_("researcher")
    item = nasty_dataset.items.first()
    response = client.post(
        build_item_action_address(item, "exclude"), {"reason": NASTY, "next": build_address(nasty_dataset)}, follow=True
    )
    text = response.content.decode()
    assert is_clean(text)
    assert f'<span class="muted">{ESCAPED}' in text
    for name, address in build_addresses(nasty_dataset).items():
        assert is_clean(client.get(address).content.decode()), name


@pytest.mark.parametrize("name", ["gallery", "table"])
def test_a_filter_is_text_in_the_page_and_in_its_links(nasty_dataset, as_, name):
    text = as_("researcher").get(
        build_addresses(nasty_dataset)[name], {"q": NASTY, "category": NASTY, "excluded": NASTY, "after": NASTY}
    )
    assert is_clean(text.content.decode())


def test_a_category_with_markup_still_leads_to_its_items(nasty_dataset, as_):
    text = as_("researcher").get(build_address(nasty_dataset), {"category": NASTY}).content.decode()
    assert "2 of 2 match the filter" in text


@pytest.mark.slow
def test_the_preview_of_a_file_is_text(as_):
    client = as_("researcher")
    table = f'"{NASTY.replace(chr(34), chr(34) * 2)}",question\n"{NASTY.replace(chr(34), chr(34) * 2)}",What?\n'
    address = send(client, table, name="<b>items.csv").url
    text = client.get(address).content.decode()
    assert is_clean(text)
    assert "<b>items" not in text
    assert ESCAPED in text
    response = client.post(address, build_choices(client, address, expression_key=NASTY + "x"), follow=True)
    assert response.status_code == 200
    assert is_clean(response.content.decode())


def test_a_report_of_errors_is_text(as_):
    client = as_("researcher")
    twice = NASTY.replace('"', '""')
    address = send(client, f'id,question\n"{twice}",One?\n"{twice}",Two?\n').url
    text = client.post(address, build_choices(client, address), follow=True).content.decode()
    assert "Nothing was saved" in text
    assert is_clean(text)


def test_no_page_needs_inline_script_or_style(nasty_dataset, as_):
    for name, address in build_addresses(nasty_dataset).items():
        response = as_("curator").get(address)
        assert "unsafe-inline" not in response["Content-Security-Policy"], name
        text = response.content.decode()
        assert ' style="' not in text, name
        assert " onclick" not in text, name
