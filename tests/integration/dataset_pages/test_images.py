"""Images are served re-encoded, cached permanently, and never by a path from a user."""

import io
import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from PIL import Image

from datasets_app.models import Asset
from datasets_app.pending_uploads import stage_upload
from tests.factories.files import build_archive, build_picture

PLACE_TAKEN = 0x8825  # The tag of EXIF for coordinates.


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


def stage_images(user, colours):
    """Store a zip with an image of each colour, tell where each was taken, and let a worker preview it."""
    exif = Image.Exif()
    exif.get_ifd(PLACE_TAKEN)[1] = "N"
    pictures = {
        f"{n}.jpg": build_picture(colour, size=(900, 600), exif=exif.tobytes()) for n, colour in enumerate(colours)
    }
    file = SimpleUploadedFile("photographs.zip", build_archive(pictures).getvalue())
    upload = stage_upload(user, {"items": file}, slug="photographs", about={})
    upload.request_job("preview", {}, leaves_out=True)
    return upload


def read_previewed(client, upload):
    page = client.get("/start/", {"upload": upload.token}).content.decode()
    return re.findall(r'<img class="thumb" src="([^"]+)"\s+alt="([^"]+)"', page)


def test_an_upload_shows_its_first_five_images_before_anything_is_saved(people, as_):
    upload = stage_images(people["researcher"], [(30 * n, 90, 200) for n in range(7)])
    client = as_("researcher")
    shown = read_previewed(client, upload)
    assert [alt for _, alt in shown] == [f"Image of item {n}" for n in range(5)]
    colours = []
    for address, _ in shown:
        response = client.get(address)
        content = b"".join(response.streaming_content)
        image = Image.open(io.BytesIO(content))
        assert (image.format, image.size, dict(image.getexif())) == ("JPEG", (320, 213), {})
        assert response["Content-Type"] == "image/jpeg"
        assert response["X-Content-Type-Options"] == "nosniff"
        assert response["Content-Security-Policy"] == "default-src 'none'; sandbox"
        assert response["Cache-Control"].startswith("private")
        colours.append(image.getpixel((10, 10))[0])
    assert colours == pytest.approx([30 * n for n in range(5)], abs=3)
    assert not Asset.objects.exists()


def test_the_images_of_an_upload_are_shown_only_to_its_owner(people, as_):
    upload = stage_images(people["researcher"], [(200, 30, 30)])
    ((address, _),) = read_previewed(as_("researcher"), upload)
    assert as_("researcher").get(address).status_code == 200
    assert as_("curator").get(address).status_code == 404
    assert as_("rater").get(address).status_code == 404


@pytest.mark.parametrize("wrong", ["a" * 64, "x", "..%2f..%2fabout.json", "%2e%2e%2fitems", "about.json"])
def test_no_other_file_of_an_upload_is_sent(people, as_, wrong):
    upload = stage_images(people["researcher"], [(200, 30, 30)])
    assert as_("researcher").get(f"/datasets/new/upload/{upload.token}/thumbnail/{wrong}").status_code == 404


def test_another_reading_replaces_the_thumbnails(people, as_):
    upload = stage_images(people["researcher"], [(200, 30, 30)])
    client = as_("researcher")
    ((address, _),) = read_previewed(client, upload)
    upload.request_job("check", {"image": "no such column"})
    assert client.get(address).status_code == 404
