"""Files and parts of pages for signed-in users are never cached, and immutable files are.

The test of all visits checks the headers of whole pages.
"""

from django.urls import reverse

from tests.integration.pages.page_visits import NO_PAGES
from tests.integration.pages.test_access_matrix import MATRIX, TO_LOGIN

CACHED = {"asset", "thumbnail", "upload_thumbnail"}  # Their addresses contain a hash of their content.


def test_files_and_parts_for_signed_in_people_are_not_stored(url_values, as_):
    opened = {}
    for name in set().union(*NO_PAGES.values()) - CACHED:
        row = MATRIX[name]
        if row.expected[0] == TO_LOGIN:
            address = reverse(name, args=[url_values.get(word, word) for word in row.args.split()])
            opened[name] = as_("operator").get(address)["Cache-Control"]
    assert len(opened) > 20
    assert [name for name, header in opened.items() if not {"private", "no-store"} <= set(header.split(", "))] == []


def test_images_have_their_own_cache_headers(url_values, as_):
    response = as_("owner").get(reverse("asset", args=[url_values["image"]]))
    assert "immutable" in response["Cache-Control"]
