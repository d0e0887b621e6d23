"""Pages of signed-in users are never cached; immutable files are."""

import pytest
from django.urls import reverse

from tests.integration.pages.test_access_matrix import MATRIX, list_served_names

CACHED = {"asset", "thumbnail", "upload_thumbnail"}  # Their addresses contain a hash of their content.
GET = [name for name in list_served_names() if MATRIX[name].method == "get"]
OPEN = [name for name in GET if name not in CACHED and MATRIX[name].expected[0] == 302]


@pytest.mark.parametrize("name", OPEN)
def test_pages_and_files_for_signed_in_people_are_not_stored(name, url_values, as_):
    row = MATRIX[name]
    response = as_("operator").get(reverse(name, args=[url_values.get(word, word) for word in row.args.split()]))
    assert "no-store" in response["Cache-Control"]
    assert "private" in response["Cache-Control"]


def test_images_have_their_own_cache_headers(url_values, as_):
    response = as_("owner").get(reverse("asset", args=[url_values["image"]]))
    assert "immutable" in response["Cache-Control"]
