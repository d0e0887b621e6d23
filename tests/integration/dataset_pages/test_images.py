"""Images are served re-encoded, cached permanently, and never by a path from a user."""

import io

import pytest
from django.urls import reverse
from PIL import Image


@pytest.mark.parametrize(("position", "content_type", "form"), [(0, "image/png", "PNG"), (1, "image/jpeg", "JPEG")])
def test_an_image_has_the_type_that_it_was_encoded_in(pictures, as_, position, content_type, form):
    image = pictures.items.all()[position].image
    response = as_("researcher").get(image.url)
    assert response["Content-Type"] == content_type
    assert Image.open(io.BytesIO(b"".join(response.streaming_content))).format == form


def test_a_thumbnail_is_a_small_jpeg(pictures, as_):
    response = as_("researcher").get(pictures.items.first().image.thumbnail_url)
    assert response["Content-Type"] == "image/jpeg"
    assert max(Image.open(io.BytesIO(b"".join(response.streaming_content))).size) <= 320


@pytest.mark.parametrize("name", ["asset", "thumbnail"])
def test_it_is_cached_privately_and_served_only_as_an_image(pictures, as_, name):
    response = as_("researcher").get(reverse(name, args=[pictures.items.first().image_id]))
    assert response["Cache-Control"] == "private, max-age=31536000, immutable"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Security-Policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("wrong", ["a" * 64, "x", "..%2f..%2fsecret_key", "%2e%2e", "A" * 64])
def test_an_unknown_hash_is_not_found(pictures, as_, wrong):
    assert as_("curator").get(f"/assets/{wrong}").status_code == 404
    assert as_("curator").get(f"/assets/{wrong}/thumbnail").status_code == 404


def test_images_accept_only_safe_methods(pictures, as_):
    address = pictures.items.first().image.url
    assert as_("curator").post(address).status_code == 405
