"""axe has no finding of any impact on any page that a signed-in person can open."""

import pytest
from django.test import Client
from django.urls import reverse
from PIL import Image

from tests.integration.pages.conftest import make_lab, make_people
from tests.integration.pages.test_access_matrix import MATRIX, PEOPLE, build_url_values, list_served_names
from tests.system.browser.page_checks import LAPTOP, PHONE, find_all_faults, show

READERS = ("owner", "operator", "rater")


@pytest.fixture
def world(transactional_db, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    lab = make_lab(make_people())
    image = lab.draft.items.first().image
    for path in (image.file, image.thumbnail_file):
        Image.new("RGB", (4, 3), "teal").save(path, "PNG")
    return lab


def list_pages(lab):
    """Yield (name, reader, address) of each page. The reader is the first of READERS that may open it."""
    url_values = build_url_values(lab)
    for name in list_served_names():
        row = MATRIX[name]
        readers = [reader for reader in READERS if row.expected[PEOPLE.index(reader)] == 200]
        if row.method == "get" and readers:
            address = reverse(name, args=[url_values.get(word, word) for word in row.args.split()])
            client = Client()
            client.force_login(lab.people[readers[0]])
            response = client.get(address)
            # Files, and parts of pages that a script fetches, are no pages.
            if response.streaming:
                response.getvalue()  # A stream that nobody reads is never finished.
            elif response.content[:15].lower() == b"<!doctype html>":
                yield name, readers[0], address


@pytest.mark.slow
def test_axe_finds_nothing_on_any_page(world, visitor):
    """Themes differ in colours alone, so the dark theme is tested for contrast only."""
    pages, faults, checked = {reader: visitor(world.people[reader]) for reader in READERS}, {}, []
    for name, reader, address in list(list_pages(world)):
        page = pages[reader]
        page.goto(address)
        checked.append(name)
        for viewport in (LAPTOP, PHONE):
            for scheme, rules in (("light", None), ("dark", ["color-contrast"])):
                show(page, viewport, scheme)
                found = find_all_faults(page, rules)
                if found:
                    faults[name, viewport["width"], scheme] = found
    assert len(checked) > 80, checked
    assert faults == {}
